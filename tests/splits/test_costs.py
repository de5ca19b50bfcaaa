from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils.rnn import pack_sequence

from instep.errors import SplitError
from instep.splits.costs import costs_of, cut_by_cost
from instep.splits.micro import Micro

whole_costs = st.lists(st.integers(0, 30), max_size=9)
any_costs = st.lists(st.floats(0, 1e6), max_size=300) | st.lists(st.integers(0, 50), max_size=300)


def every_way(count):
    """All ways to cut so many samples into contiguous pieces."""
    for cuts in itertools.product([False, True], repeat=max(count - 1, 0)):
        bounds = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), count]
        yield list(itertools.pairwise(bounds)) if count else []


@given(whole_costs, st.integers(1, 40))
def test_the_fewest_pieces_and_the_cheapest_dearest(costs, budget):
    """Against all there are: pieces within the budget, or of one sample that is over it alone."""

    def allowed(pieces):
        return all(b - a == 1 or sum(costs[a:b]) <= budget for a, b in pieces)

    def dearest(pieces):
        within = [sum(costs[a:b]) for a, b in pieces if sum(costs[a:b]) <= budget]
        return max(within, default=0)

    ways = [pieces for pieces in every_way(len(costs)) if allowed(pieces)]
    # A sample over the budget shares its piece with nobody, not even with one that costs nothing.
    fewest = min(len(pieces) for pieces in ways)
    best = min(dearest(pieces) for pieces in ways if len(pieces) == fewest)
    found = [(part.start, part.stop) for part in cut_by_cost(costs, budget)]
    assert found in ways
    assert len(found) == fewest
    assert dearest(found) == best


@given(any_costs, st.floats(0.1, 1e6))
def test_pieces_are_the_samples_in_order(costs, budget):
    found = cut_by_cost(costs, budget)
    covered = [index for part in found for index in range(part.start, part.stop)]
    assert covered == list(range(len(costs)))
    for part in found:
        assert part.stop - part.start == 1 or sum(costs[part], 0.0) <= budget


def test_many_samples_take_no_time():
    costs = [1 + (i * 7919) % 97 for i in range(20_000)]
    pieces = cut_by_cost(costs, 4096)
    assert max(sum(costs[p]) for p in pieces) <= 4096
    assert sum(costs) / 4096 <= len(pieces) <= sum(costs) / 4000


MASK = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0]])


@pytest.mark.parametrize(
    ("batch", "costs"),
    [
        ({"input_ids": torch.ones(3, 4), "attention_mask": MASK}, [3, 1, 2]),
        ((torch.ones(3, 4), MASK.bool()), [3, 1, 2]),
        ({"x": torch.ones(3, 4), "key_padding_mask": ~MASK.bool()}, [3, 1, 2]),
        ((torch.ones(3, 4), torch.where(MASK > 0, 5, -100)), [3, 1, 2]),
        ((torch.ones(3, 4), torch.ones(3, 4, dtype=torch.int64)), [4, 4, 4]),
        ((torch.ones(3, 4, 2), torch.ones(3, dtype=torch.bool)), [8, 8, 8]),
        (pack_sequence([torch.ones(n) for n in (2, 5, 3)], enforce_sorted=False), [2, 5, 3]),
    ],
)
def test_a_sample_costs_its_real_tokens(batch, costs):
    assert costs_of(batch, 3, 0, None) == costs


def test_time_first():
    batch = {"x": torch.ones(4, 3, 7), "attention_mask": MASK.T}
    assert costs_of(batch, 3, 1, None) == [3, 1, 2]
    pieces = list(Micro(tokens=3, dim=1).pieces(batch))
    assert [piece["x"].shape for piece in pieces] == [(4, 1, 7), (4, 2, 7)]


def test_costs_of_the_user():
    batch = torch.arange(4)
    split = Micro(tokens=4, cost=lambda x: x + 1)
    assert [piece.tolist() for piece in split.pieces(batch)] == [[0, 1], [2], [3]]
    assert len(list(Micro(tokens=10, cost=lambda x: [2.5] * 4).pieces(batch))) == 1
    for wrong in (lambda _: [1, 2], lambda _: [1, -1, 1, 1], lambda _: [1, float("nan"), 1, 1]):
        with pytest.raises(SplitError, match="cost= gave"):
            list(Micro(tokens=4, cost=wrong).pieces(batch))
