"""A state of several ranks, dealt out to another number of them."""

from __future__ import annotations

import copy
from unittest import mock

import pytest
import torch

import instep
from instep.distributed import shard
from instep.engine.spreading import dealt
from instep.errors import StateError
from tests.engine.kit import mlp


def states(world: int, skips: list[int], **turns) -> list[dict]:
    """States of ranks that have done so many batches of four samples each."""
    model = mlp()
    found = []
    for rank in range(world):
        torch.manual_seed(rank)
        stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
        loader = torch.utils.data.DataLoader(range(100), batch_size=4)
        windows = iter(stepper.windows(shard(loader, rank=rank, world=world), size=1))
        # Ranks of one process, which no stepper would take for ranks.
        with (
            mock.patch("instep.engine.loop.refuse_a_part"),
            mock.patch("instep.engine.dealt.refuse_a_part"),
        ):
            for _ in range(skips[rank]):
                for _ in next(windows):
                    pass
        state = stepper.state_dict()
        state["place"]["position"]["turns"].update(turns)
        found.append(state)
        windows.close()
    return found


@pytest.mark.filterwarnings("ignore:a window of 'optimizer' closed without any backward")
class TestDealt:
    def test_what_all_have_done_is_the_beginning_of_the_epoch(self):
        saved = states(2, [3, 3])
        for world in (1, 3, 5):
            for rank in range(world):
                position = dealt(saved, rank, world)["place"]["position"]
                assert (position["skip"], position["redraw"]) == (0, [])
                assert position["begins_at"] == 3 * 4 * 2

    def test_what_was_begun_by_others_counts(self):
        saved = states(2, [3, 3])
        for state in saved:
            state["place"]["position"]["begins_at"] = 7
        assert dealt(saved, 0, 3)["place"]["position"]["begins_at"] == 7 + 24

    def test_who_has_done_less_must_have_no_more(self):
        assert dealt(states(2, [3, 2], is_over=1), 0, 3)["place"]["position"]["begins_at"] == 24
        with pytest.raises(StateError, match="of 2 ranks cannot go on with 3"):
            dealt(states(2, [3, 2]), 0, 3)

    def test_ranks_that_were_not_there_draw_numbers_of_their_own(self):
        saved = states(2, [1, 1])
        before = torch.get_rng_state()
        found = [dealt(saved, rank, 4)["random"]["cpu"] for rank in range(4)]
        assert torch.equal(before, torch.get_rng_state())
        drawn = set()
        for state in found:
            torch.set_rng_state(state)
            drawn.add(torch.rand(1).item())
        assert len(drawn) == 4
        assert torch.equal(found[1], saved[1]["random"]["cpu"])

    def test_what_was_saved_stays_as_it_was(self):
        saved = states(2, [1, 1])
        before = copy.deepcopy(saved)
        dealt(saved, 3, 4)
        assert repr(saved) == repr(before)
