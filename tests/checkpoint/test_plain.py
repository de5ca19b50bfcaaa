"""What a checkpoint may hold is what can be read again, and nothing else."""

from __future__ import annotations

import io
from collections import Counter, OrderedDict
from typing import NamedTuple

import numpy as np
import pytest
import torch

from instep.checkpoint.plain import copied, first_foreign


class Point(NamedTuple):
    x: int
    y: int


GOOD = {
    "numbers": [1, 2.5, True, None, 1j, 10**30],
    "texts": ("a", b"b", bytearray(b"c")),
    "sets": {1, 2},
    "ordered": OrderedDict(a=1),
    "counter": Counter([1, 1, 2]),
    3: {"size": torch.Size([2]), "dtype": torch.bfloat16, "device": torch.device("cpu")},
    "tensors": [torch.ones(2), torch.nn.Parameter(torch.ones(1)), torch.zeros(0)],
    "sparse": torch.eye(3).to_sparse(),
}


def test_what_is_let_through_can_be_read():
    assert first_foreign(GOOD) is None
    buffer = io.BytesIO()
    torch.save(GOOD, buffer)
    buffer.seek(0)
    again = torch.load(buffer, weights_only=True)
    for key in ("numbers", "texts", "sets", "ordered", "counter", 3):
        assert again[key] == GOOD[key]


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (np.float64(1.0), "numpy.float64"),
        (np.ones(2), "numpy.ndarray"),
        (Point(1, 2), "test_plain.Point"),
        (print, "builtins.builtin_function_or_method"),
        (torch.empty(2, device="meta"), "meta device"),
        (range(3), "builtins.range"),
    ],
)
def test_the_rest_is_found_and_named(value, name):
    problem = first_foreign({"a": [0, {"b": value}]}, "extra")
    assert problem is not None
    assert problem.startswith("extra['a'][1]['b'] is a ")
    assert name in problem


def test_keys_are_looked_at():
    assert first_foreign({"a": {np.int64(1): 0}}, "x") == "a key of x['a'] is a numpy.int64"


def test_copies_do_not_follow_and_stay_tied():
    weight = torch.ones(2)
    tree = {"a": weight, "b": [weight.detach()], "c": (Counter([1]), OrderedDict(x=weight[:1]))}
    copy = copied(tree)
    weight.zero_()
    assert copy["a"].tolist() == [1.0, 1.0]
    assert copy["a"] is copy["b"][0]
    assert copy["c"][1]["x"].tolist() == [1.0]
    assert copied(GOOD)["counter"] == GOOD["counter"]
    assert copied(GOOD)["sparse"].is_sparse
