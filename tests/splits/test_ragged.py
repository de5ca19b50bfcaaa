from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence, unpack_sequence

from instep.errors import SplitError
from instep.splits.cut import shapes_of
from instep.splits.micro import Micro
from instep.splits.ragged import packed_lengths

lengths = st.lists(st.integers(1, 6), min_size=1, max_size=12)


@given(lengths, st.integers(1, 13), st.booleans())
def test_packed_sequences_come_out_as_they_went_in(many, size, is_sorted):
    many = sorted(many, reverse=True) if is_sorted else many
    sequences = [torch.randn(n, 2) for n in many]
    packed = pack_sequence(sequences, enforce_sorted=is_sorted)
    labels = torch.arange(len(many))
    assert packed_lengths(packed) == many
    done = 0
    for piece, label in Micro(size).pieces((packed, labels)):
        assert (piece.sorted_indices is None) == is_sorted
        for sequence, index in zip(unpack_sequence(piece), label.tolist(), strict=True):
            assert torch.equal(sequence, sequences[index])
        _, found = pad_packed_sequence(piece)
        assert found.tolist() == [many[i] for i in label.tolist()]
        done += len(label)
    assert done == len(many)


def test_gradients_reach_packed_data():
    x = torch.randn(6, 2, requires_grad=True)
    packed = pack_sequence([x[:1], x[1:4], x[4:]], enforce_sorted=False)
    for piece in Micro(1).pieces(packed):
        piece.data.sum().backward(retain_graph=True)
    assert torch.equal(x.grad, torch.ones_like(x))


def test_a_recurrent_network_sees_the_same_sequences():
    torch.manual_seed(0)
    network = torch.nn.LSTM(2, 3).double()
    sequences = [torch.randn(n, 2).double() for n in (3, 5, 1, 5)]
    packed = pack_sequence(sequences, enforce_sorted=False)
    _, (whole, _) = network(packed)
    parts = [network(piece)[1][0] for piece in Micro(3).pieces(packed)]
    assert torch.allclose(torch.cat(parts, 1), whole, rtol=1e-14)


# torch says once per process that nested tensors are a prototype.
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_jagged_tensors():
    rows = [torch.randn(n, 2) for n in (3, 1, 4)]
    values = torch.cat(rows)
    offsets = torch.tensor([0, 3, 4, 8])
    x = torch.nested.nested_tensor_from_jagged(values, offsets)
    y = torch.nested.nested_tensor_from_jagged(values * 2, offsets)
    assert shapes_of(x, 0) == (("float32", (4, 2)),)
    assert [p["x"].size(0) for p in Micro(tokens=4).pieces({"x": x})] == [2, 1]
    found = []
    for one, two, label in Micro(2).pieces((x, y, torch.arange(3))):
        # They can be added only if they share their offsets, as the whole ones do.
        both = (one + two).unbind()
        found += [row / 3 for row in both]
        assert len(both) == len(label)
    assert all(torch.allclose(a, b) for a, b in zip(found, rows, strict=True))
    with pytest.raises(SplitError, match="with holes"):
        list(Micro(1).pieces(x.transpose(1, 2)))
    strided = torch.nested.nested_tensor(rows, layout=torch.strided)
    with pytest.raises(SplitError, match=r"layout(.|\n)*torch.jagged"):
        list(Micro(1).pieces(strided))
