from __future__ import annotations

from collections import OrderedDict, UserDict, defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from instep.errors import SplitError
from instep.splits.micro import Micro


class Pair(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


@dataclass(frozen=True)
class Sample:
    image: torch.Tensor
    name: str


@given(st.integers(1, 30), st.integers(1, 40))
def test_pieces_are_the_batch_again(samples, size):
    x = torch.arange(samples)
    pieces = list(Micro(size).pieces(x))
    assert torch.equal(torch.cat(pieces), x)
    assert all(len(piece) == size for piece in pieces[:-1])
    assert len(pieces) == -(-samples // size)


@pytest.mark.parametrize("kind", [list, tuple])
def test_a_number_per_sample_may_be_a_tensor(kind):
    x = torch.arange(5)
    numbers = kind(torch.tensor(float(n)) for n in range(5))
    pieces = list(Micro(2).pieces((x, {"y": numbers})))
    assert [[int(n) for n in piece[1]["y"]] for piece in pieces] == [[0, 1], [2, 3], [4]]
    assert all(type(piece[1]["y"]) is kind for piece in pieces)
    # As many numbers as there are samples, and no fewer: these belong to the batch as a whole.
    (_, (low, high)), *_ = Micro(2).pieces((x, (torch.tensor(0.0), torch.tensor(1.0))))
    assert (low, high) == (0.0, 1.0)


def test_every_structure_is_cut_and_keeps_its_type():
    batch = OrderedDict(
        pair=Pair(torch.arange(5), torch.ones(5, 2)),
        sample=Sample(torch.zeros(5, 3), "five"),
        nested=[(torch.arange(5), {"deep": torch.arange(5)})],
        captions=["a", "b", "c", "d", "e"],
        labels=("x", "y"),
        scale=torch.tensor(2.0),
        flag=True,
        nothing=None,
    )
    first, _, last = Micro(2).pieces(batch)
    assert type(first) is OrderedDict
    assert type(first["pair"]) is Pair
    assert first["sample"] == Sample(first["sample"].image, "five")
    assert first["sample"].image.shape == (2, 3)
    assert last["nested"][0][1]["deep"].tolist() == [4]
    assert first["captions"] == ["a", "b"]
    assert last["captions"] == ["e"]
    assert first["labels"] == ("x", "y")
    assert last["scale"] is batch["scale"]
    assert last["flag"] is True
    assert last["nothing"] is None
    assert Micro.samples(last) == 1


def test_pieces_are_views():
    x = torch.arange(4)
    first, _ = Micro(2).pieces(x)
    first[0] = 9
    assert x[0] == 9


@pytest.mark.parametrize("size", [0, -3, 2.0, True, "4", None])
def test_sizes_that_are_none(size):
    with pytest.raises(SplitError, match="split is"):
        Micro(size)


def test_batches_that_cannot_be_cut():
    with pytest.raises(SplitError, match=r"\[2, 3\] samples"):
        list(Micro(1).pieces((torch.ones(2), torch.ones(3))))
    for batch in ("text", 3, torch.tensor(1.0), [], {"a": None}):
        with pytest.raises(SplitError, match="no tensor to cut"):
            list(Micro(1).pieces(batch))
    assert list(Micro(2).pieces(torch.ones(0, 3))) == []


def test_containers_keep_what_they_carry():
    defaults = defaultdict(int, x=torch.arange(4))
    first, _ = Micro(2).pieces(defaults)
    assert type(first) is defaultdict
    assert first["missing"] == 0
    assert len(first["x"]) == 2
    assert "missing" not in defaults

    @dataclass
    class Labelled:
        x: torch.Tensor
        count: int = field(init=False, default=0)

    batch = Labelled(torch.arange(4))
    batch.count = 7
    assert next(Micro(2).pieces(batch)).count == 7
    pair = (torch.arange(2), Pair(1, 2))
    assert next(Micro(1).pieces(pair))[1] == Pair(1, 2)
    assert len(list(Micro(np.int64(2)).pieces(torch.arange(4)))) == 2


def test_tensors_that_are_not_dense_are_refused():
    with pytest.raises(SplitError, match="layout"):
        list(Micro(1).pieces(torch.eye(3).to_sparse()))


class Encoded(UserDict):
    """As transformers' BatchEncoding: entries, and something else for each sample."""

    def __init__(self, data=None, encodings=None):
        super().__init__(data)
        self.encodings = encodings
        self.n_sequences = 1

    def __getattr__(self, item):
        try:
            return self.data[item]
        except KeyError as error:
            raise AttributeError(item) from error


class Frozen(OrderedDict):
    """As transformers' ModelOutput: a dict that refuses update()."""

    def update(self, *args, **kwargs):
        raise TypeError("refused")


def test_mappings_as_tokenizers_make_them():
    batch = Encoded({"input_ids": torch.arange(3), "name": "x"}, ["a", "b", "c"])
    first, last = Micro(2).pieces(batch)
    assert type(first) is Encoded
    assert first.input_ids.tolist() == [0, 1]
    assert last.encodings == ["c"]
    assert last.n_sequences == 1
    assert batch.encodings == ["a", "b", "c"]
    output = Frozen()
    output["logits"] = torch.arange(3)
    assert [len(piece["logits"]) for piece in Micro(2).pieces(output)] == [2, 1]


def test_samples_along_another_dimension():
    batch = (torch.arange(12).view(4, 3), torch.arange(3), torch.ones(4, 3, 2))
    first, last = Micro(2, dim=1).pieces(batch)
    assert first[0].tolist() == [[0, 1], [3, 4], [6, 7], [9, 10]]
    assert last[1].tolist() == [2]
    assert last[2].shape == (4, 1, 2)
    plan = Micro(2, dim=1).plan(batch)
    assert torch.equal(plan.join([first[0], last[0]]), batch[0])
    assert torch.equal(plan.part(batch[0], 1), last[0])
    assert torch.equal(plan.part(batch[1], 1), last[1])
    assert [piece.items for piece in plan] == [2, 1]
    with pytest.raises(SplitError, match=r"dimension 2"):
        list(Micro(1, dim=2).pieces(batch))


def test_the_error_names_the_dimension_that_would_do():
    time_first = (torch.ones(7, 3, 2), torch.ones(5, 3))
    with pytest.raises(SplitError, match=r"\[5, 7\] samples(.|\n)*dim=1"):
        list(Micro(1).pieces(time_first))
    with pytest.raises(SplitError, match=r"\[3, 7\] samples(.|\n)*dim=1"):
        list(Micro(1).pieces((torch.ones(7, 3), torch.ones(3))))
    with pytest.raises(SplitError) as caught:
        list(Micro(1).pieces((torch.ones(7, 3, 4), torch.ones(5, 3, 4))))
    assert "dim=" not in str(caught.value)  # two would do, so that none is meant


def test_tensors_hidden_in_an_object_are_refused():
    class Hidden:
        def __init__(self, x):
            self.x = x

    with pytest.raises(SplitError, match=r"Hidden, whose 'x'"):
        list(Micro(1).pieces((torch.ones(3), Hidden(torch.ones(3)))))
    pieces = list(Micro(1).pieces((torch.ones(3), Hidden(torch.ones(5)))))
    assert len(pieces) == 3
    assert len(list(Micro(1).pieces((torch.ones(2), torch.nn.BatchNorm1d(2))))) == 2


@pytest.mark.parametrize(
    ("size", "options"),
    [
        (8, {"tokens": 4}),
        ("auto", {"tokens": 4}),
        (None, {"tokens": 0}),
        (None, {"tokens": "4"}),
        (None, {"tokens": float("inf")}),
        (8, {"cost": len}),
        (8, {"budget": 100}),
        ("auto", {"budget": -1}),
        ("auto", {"budget": True}),
        (8, {"dim": -1}),
        (8, {"dim": 1.0}),
    ],
)
def test_options_that_do_not_fit(size, options):
    with pytest.raises(SplitError, match="does not fit this split"):
        Micro(size, **options)
    with pytest.raises(SplitError, match="split is None"):
        Micro()


@pytest.mark.parametrize("budget", ["2GB", 0, float("inf")])
def test_a_budget_is_a_number_of_bytes(budget):
    with pytest.raises(SplitError) as caught:
        Micro("auto", budget=budget)
    assert "bytes" in caught.value.why
    assert "budget=2 * 2**30" in caught.value.fix
