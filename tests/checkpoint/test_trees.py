"""States taken apart and put together are what they were."""

from __future__ import annotations

from collections import OrderedDict

import torch
from hypothesis import given
from hypothesis import strategies as st

from instep.checkpoint.trees import join, split

KEYS = st.one_of(st.integers(0, 3), st.sampled_from(["a", "b", "a.b", "0", "a.0", "b'"]))
LEAVES = st.one_of(st.none(), st.integers(), st.text(max_size=3), st.just("tensor"))
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
        st.dictionaries(KEYS, inner, max_size=3).map(OrderedDict),
    ),
    max_leaves=12,
)


def grown(tree, made: list[torch.Tensor]):
    """Put a tensor of its own wherever the tree says so."""
    if tree == "tensor":
        made.append(torch.tensor(float(len(made))))
        return made[-1]
    if isinstance(tree, dict):
        return type(tree)((key, grown(value, made)) for key, value in tree.items())
    if isinstance(tree, list | tuple):
        return type(tree)(grown(value, made) for value in tree)
    return tree


@given(TREES)
def test_every_tensor_comes_back_to_its_place(tree):
    made: list[torch.Tensor] = []
    whole = grown(tree, made)
    rest, tensors = split(whole)
    assert len(tensors) == len(made)
    again = join(rest, tensors)
    # Tensors compare elementwise, so they are told apart by their numbers.
    assert repr(again) == repr(whole)
    assert type(again) is type(whole)
