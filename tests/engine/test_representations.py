from __future__ import annotations

import numpy as np
import pytest
import torch

from instep.engine.representations import Joint
from instep.errors import SplitError
from instep.splits.micro import Micro

X = torch.arange(10.0).reshape(5, 2)


def joint_of(trees: list[object], *, summed: bool = False) -> Joint:
    joint = Joint(Micro(2).plan(X), summed=summed)
    for tree in trees:
        joint.add(tree)
    return joint


def test_parts_are_joined_and_found_again():
    parts = list(X.split(2))
    joint = joint_of([{"x": part, "name": "n"} for part in parts])
    (whole,) = joint.joined()
    assert torch.equal(whole, X)
    assert joint.tree(iter([whole])) == {"x": whole, "name": "n"}
    assert all(torch.equal(joint.part(whole, i), part) for i, part in enumerate(parts))
    assert len(joint) == 1


def test_which_carry_a_gradient_is_seen_in_any_piece():
    parts = list(X.clone().requires_grad_().split(2))
    joint = joint_of([(parts[0].detach(), parts[0]), (parts[1], parts[1]), (parts[2], parts[2])])
    assert joint.carries == [True, True]
    assert not any(whole.requires_grad for whole in joint.joined())
    assert joint_of([(part.detach(),) for part in parts]).carries == [False]


def test_sums_of_narrow_types_are_made_in_a_wide_one():
    ones = [torch.ones(1, dtype=torch.bfloat16)] * 512
    (total,) = joint_of(ones, summed=True).joined()
    assert total.dtype == torch.bfloat16
    assert total.item() == 512


def test_the_users_own_tensors_are_not_written_into():
    first = torch.ones(2)
    joint_of([first, torch.ones(2)], summed=True)
    assert first.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    "trees",
    [
        [{"a": X[:2]}, {"b": X[2:4]}],
        [{"a": X[:2]}, {"a": X[2:4].double()}],
        [{"a": X[:2]}, {"a": None}],
        [[X[:2]], (X[2:4],)],
        [(X[:2], 1.0), (X[2:4], 2.0)],
        [(X[:2], ["a"]), (X[2:4], ["a", "b"])],
    ],
    ids=str,
)
def test_another_structure_is_refused(trees):
    with pytest.raises(SplitError, match="another structure"):
        joint_of(trees)


@pytest.mark.parametrize("number", [2, 2.0, np.float32(2), [2, 3]])
def test_numbers_are_not_summed_and_so_refused(number):
    with pytest.raises(SplitError, match="a number") as caught:
        joint_of([(X[:2].sum(), {"count": number})], summed=True)
    assert "torch.tensor" in caught.value.fix
    joint_of([(X[:2], number)])


def test_what_is_no_number_may_stand_beside_a_sum():
    joint = joint_of([(X[:2].sum(), "name", None, True)] * 2, summed=True)
    assert joint.tree(iter([X]))[1:] == ("name", None, True)
