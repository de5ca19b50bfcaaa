"""Lists of samples are cut into samples, columns as ever, and what may be either is refused."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import default_collate

from instep.errors import SplitError
from instep.splits.cut import shapes_of
from instep.splits.listed import COLUMNS, is_listed
from instep.splits.micro import Micro
from instep.splits.tree import tensors


@dataclass
class Sample:
    image: torch.Tensor
    label: int


def image(*shape):
    return torch.ones(shape or (3, 8, 8))


LABEL = torch.tensor(1)
LISTED = {
    "pairs": [(image(), LABEL)] * 5,
    "numbers": [(image(), 1)] * 5,
    "lists": [[image(), LABEL]] * 5,
    "dicts": [{"x": image(), "y": LABEL}] * 5,
    "dicts with numbers": [{"x": image(), "y": 1, "index": 7}] * 5,
    "texts": [(image(7), "text", LABEL)] * 5,
    "dataclasses": [Sample(image(), 1)] * 5,
    "as many as rows": [(image(), LABEL)] * 3,
    "of different lengths": [(image(n), LABEL) for n in (4, 2, 7)],
    "image and mask": [(image(), image(8, 8))] * 5,
    "image, boxes and label": [{"x": image(), "boxes": image(n, 4), "y": 1} for n in (0, 3, 2)],
    "missing label": [(image(3), image(5)), (image(3), None)],
}
COLUMNED = {
    "two tensors": [image(6, 3), image(6)],
    "views": [image(6, 3)] * COLUMNS,
    "numbers one by one": [image(6)] * (COLUMNS + 2),
    "tuple of many": (image(6, 3),) * 20,
    "structures of two kinds": [image(6, 3), (image(6), image(6))],
    "not alike": [(image(6, 3), image(6)), {"x": image(6)}],
    "zipped loaders": ([image(6, 3), image(6)], [image(6, 3), image(6)]),
    "dict of lists": {"x": [(image(6), LABEL)] * 6},
    "packed": [pack_sequence([image(3), image(2)])] * 2,
    "texts": [("a", "b"), image(2)],
    "nothing": [],
}
EITHER = {
    "lists": [[image(6, 3), image(6)]] * 2,
    "dicts": [{"x": image(6), "mask": image(6)}] * 4,
    "one": [{"x": image(6), "y": image(6)}],
    "of different lengths": [{"x": image(n), "mask": image(n)} for n in (4, 2)],
    "with a weight": [{"x": image(6), "y": image(6), "weight": 0.5}] * 2,
    "with a text": [{"x": image(6), "name": "a"}] * 2,
    "many of a shape": [image(6, 3)] * (COLUMNS + 1),
    "one labelled": [(image(), LABEL)],
    "one with an epoch": [{"image": image(32, 3), "epoch": 5}],
    "batches with an epoch": [{"image": image(32, 3), "epoch": 5}] * 3,
    "batches with a weight": [[image(32, 3), 0.3], [image(32, 3), 0.7]],
    "batches with a place": [(image(32, 3), 0), (image(32, 3), 1)],
    "images with a fraction": [[image(), 0.5]] * 5,
    "labels first": [(LABEL, image())] * 5,
    "dicts with a fraction": [{"x": image(), "y": LABEL, "weight": 0.5}] * 5,
    "dicts with a text": [{"x": image(), "y": LABEL, "name": "a"}] * 5,
    "tuple of labelled": ((image(), LABEL),) * 4,
}


@pytest.mark.parametrize("name", LISTED)
def test_lists_of_samples_are_cut_into_samples(name):
    batch = LISTED[name]
    pieces = list(Micro(2).pieces(batch))
    assert Micro.samples(batch) == len(batch)
    assert [len(piece) for piece in pieces] == [2] * (len(batch) // 2) + [1] * (len(batch) % 2)
    assert all(type(piece) is list for piece in pieces)
    assert all(a is b for a, b in zip(chain(*pieces), batch, strict=True))


@pytest.mark.parametrize("name", COLUMNED)
def test_columns_are_cut_as_ever(name):
    assert not is_listed(COLUMNED[name], 0)


@pytest.mark.parametrize("name", EITHER)
def test_what_may_be_either_is_refused_and_both_can_be_said(name):
    batch = EITHER[name]
    with pytest.raises(SplitError, match=r"samples, or columns\?") as caught:
        list(Micro(2).pieces(batch))
    assert "dim=None" in caught.value.fix
    assert len(next(Micro(2, dim=None).pieces(batch))) == min(2, len(batch))
    if "tuple(batch)" in caught.value.fix:
        assert not is_listed(tuple(batch), 0)
    else:
        assert "dict(enumerate(batch))" in caught.value.fix
        assert Micro.samples(dict(enumerate(batch))) == max(
            len(t) for t in tensors(batch) if t.dim()
        )
    assert not is_listed(batch, 1)


def boxed(*counts):
    return [(image(), {"boxes": image(n, 4), "labels": image(n)}) for n in counts]


ZIPPED = {
    "detection": boxed(2, 2, 2, 2),
    "as many boxes as channels": boxed(3, 3, 3, 3),
    "one": boxed(2),
    "images of any size and classes": [(image(3, n, n), n) for n in (5, 8, 7)],
    "with labels in tensors": [(image(3, n, n), LABEL) for n in (5, 8, 7, 9)],
    "masks": [(image(3, n, n), image(n, n)) for n in (5, 8, 7)],
    "captions": [(image(3, n, n), "text") for n in (5, 8, 7, 9)],
}


@pytest.mark.parametrize("dim", [0, None])
@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize("name", ZIPPED)
def test_zipped_samples_are_told_to_come_as_a_list(name, kind, dim):
    samples = ZIPPED[name]
    with pytest.raises(SplitError, match="one entry per sample") as caught:
        list(Micro(2, dim=dim).pieces(kind(map(kind, zip(*samples, strict=True)))))
    assert "collate_fn=list" in caught.value.fix
    pieces = list(Micro(2, dim=None).pieces(samples))
    assert sum(map(len, pieces)) == len(samples)


def test_what_is_of_several_kinds_is_not_told_to_be_samples():
    with pytest.raises(SplitError) as caught:
        list(Micro(2).pieces([[image()] * 6, {"boxes": image(2, 4)}]))
    assert "dim=None" not in caught.value.fix


def test_numbers_in_tensors_are_samples_if_that_is_said():
    batch = [LABEL] * 10
    with pytest.raises(SplitError) as caught:
        list(Micro(4).pieces(batch))
    assert "dim=None" in caught.value.fix
    assert [len(piece) for piece in Micro(4, dim=None).pieces(batch)] == [4, 4, 2]


PAIR = ((image(3, 4), 1), (image(3, 4), 2))
COLLATED = {
    "pairs": ((image(3, 4), 1), 6),
    "named": ({"x": image(3, 4), "name": "a"}, 6),
    "rows": (tuple(float(n) for n in range(10)), 6),
    "views and a text": ((image(3), image(3), "a"), 6),
    "two views and two texts": (((image(3), image(3)), ("a", "b")), 6),
    "views and labels": (((image(3, 4), image(3, 4)), (1, 2)), 6),
    "views and a name, as many samples": (((image(3), image(3)), "a"), 2),
}
COLLATED_EITHER = {
    "pair of pairs": (PAIR, 6),
    "pair of dicts": ([{"a": image(3)}, {"a": image(3)}], 6),
    "views and dicts": (((image(3), image(3)), ({"a": 1.0}, {"a": 2.0})), 6),
}


@pytest.mark.parametrize("name", COLLATED)
def test_what_torch_collates_is_cut_in_columns(name):
    sample, count = COLLATED[name]
    batch = default_collate([sample] * count)
    assert Micro.samples(batch) == count
    assert all(len(leaf) == 1 for p in Micro(1).pieces(batch) for leaf in tensors(p))


@pytest.mark.parametrize("name", COLLATED_EITHER)
def test_what_torch_collates_and_may_be_samples_is_asked(name):
    sample, count = COLLATED_EITHER[name]
    batch = default_collate([sample] * count)
    with pytest.raises(SplitError) as caught:
        list(Micro(2).pieces(batch))
    columns = tuple(batch) if "tuple(batch)" in caught.value.fix else dict(enumerate(batch))
    assert Micro.samples(columns) == count


def test_what_a_list_of_samples_may_be():
    texts = ["one", "two", "three"]
    assert list(Micro(2, dim=None).pieces(texts)) == [["one", "two"], ["three"]]
    assert list(Micro(2, dim=None).pieces(())) == []
    lengths = [torch.ones(n) for n in (5, 2, 7)]
    assert [len(piece) for piece in Micro(2, dim=None).pieces(lengths)] == [2, 1]
    for batch in (torch.ones(4), {"x": torch.ones(4)}, "text", 3):
        with pytest.raises(SplitError, match="dim=None, and the batch is"):
            list(Micro(2, dim=None).pieces(batch))
    for batch in (lengths, texts):
        with pytest.raises(SplitError) as caught:
            list(Micro(2).pieces(batch))
        assert "dim=None" in caught.value.fix


def test_pieces_of_equal_cost():
    batch = [(torch.ones(n, dtype=torch.int64), LABEL) for n in (4, 1, 3, 2)]
    assert [len(piece) for piece in Micro(tokens=5).pieces(batch)] == [2, 2]
    masked = [
        {"x": torch.ones(4), "attention_mask": torch.arange(4) < n, "y": 0} for n in (4, 1, 3, 2)
    ]
    assert [len(piece) for piece in Micro(tokens=5, dim=None).pieces(masked)] == [2, 2]
    lengths = Micro(tokens=5, dim=None, cost=lambda samples: map(len, samples))
    assert [len(piece) for piece in lengths.pieces(["abc", "de", "fghi"])] == [2, 1]
    with pytest.raises(SplitError, match="how many tokens") as caught:
        list(Micro(tokens=5, dim=None).pieces(["abc", "de"]))
    assert "cost=" in caught.value.fix


def test_shapes_are_the_largest():
    batch = [(torch.ones(n, 3), LABEL) for n in (4, 9, 2)]
    assert shapes_of(batch, 0) == (("float32", (9, 3)), ("int64", ()))
    assert shapes_of([torch.ones(2), torch.ones(2, 3)], None) == (("float32", (6,)),)
    assert shapes_of(["a", "b"], None) == ()
