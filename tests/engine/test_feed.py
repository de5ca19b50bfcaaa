from __future__ import annotations

import pytest
import torch

from instep.checkpoint.plain import first_foreign
from instep.engine.feed import END, Feed
from instep.errors import SetupError, StateError


def random_batches(count: int = 6):
    """A loader that draws from torch's generator, like augmentation in the main process."""
    for _ in range(count):
        yield torch.rand(1).item()


class Loader:
    def __iter__(self):
        return random_batches()


def test_batches_come_in_order_then_the_end():
    feed = Feed([1, 2, 3])
    assert feed.draw_ahead(2)
    assert feed.waiting() == [1, 2]
    taken = [feed.take() for _ in range(4)]
    assert taken == [1, 2, 3, END]
    assert feed.take() is END
    assert not feed.draw_ahead(1)


@pytest.mark.parametrize("ahead", [0, 1, 3])
@pytest.mark.parametrize("work_done", [False, True])
@pytest.mark.parametrize("taken", [1, 2, 4])
def test_a_position_leads_back_to_the_same_batches_and_random_numbers(ahead, work_done, taken):
    torch.manual_seed(5)
    feed = Feed(Loader())
    for _ in range(taken):
        if ahead:
            feed.draw_ahead(ahead)
        feed.finish()
        batch = feed.take()
        if _ < taken - 1:
            torch.rand(3)  # the work of a micro-batch draws, too
    after_hand_out = torch.get_rng_state()
    if work_done:
        torch.rand(3)
        feed.finish()
    position = feed.position()
    rest = [batch] if not work_done else []
    state = after_hand_out if not work_done else torch.get_rng_state()

    def drain(some: Feed) -> list[float]:
        found = []
        while (one := some.take()) is not END:
            found.append(one)
            torch.rand(2)
        return found

    torch.set_rng_state(state)
    rest += drain(feed)
    torch.manual_seed(123)
    again = Feed(Loader(), position)
    if not work_done:
        assert again.take() == rest[0]
        assert drain(again) == rest[1:]
    else:
        assert drain(again) == rest


def test_a_loader_that_is_too_short_is_refused():
    feed = Feed([1, 2, 3])
    for _ in range(3):
        feed.take()
        feed.finish()
    with pytest.raises(StateError, match="ended before batch 3"):
        Feed([1, 2], feed.position())


def test_generators_of_the_loader_are_put_back():
    generator = torch.Generator().manual_seed(1)
    data = torch.utils.data.DataLoader(range(9), shuffle=True, generator=generator, batch_size=2)
    feed = Feed(data)
    whole = [feed.take()]
    feed.finish()
    position = feed.position()
    while (batch := feed.take()) is not END:
        whole.append(batch)
    other = torch.Generator().manual_seed(77)
    again = Feed(
        torch.utils.data.DataLoader(range(9), shuffle=True, generator=other, batch_size=2), position
    )
    for expected in whole[1:]:
        assert torch.equal(again.take(), expected)
    assert again.take() is END


class Counting:
    """A loader that knows where it is, as torchdata's StatefulDataLoader does."""

    def __init__(self) -> None:
        self.done = 0
        self.drawn = 0

    def state_dict(self):
        return {"done": self.done}

    def load_state_dict(self, state):
        self.done = state["done"]

    def __iter__(self):
        while self.done < 6:
            self.done += 1
            self.drawn += 1
            yield self.done, torch.rand(1).item()
        self.done = 0


@pytest.mark.parametrize("ahead", [0, 1, 3])
@pytest.mark.parametrize("work_done", [False, True])
def test_a_loader_that_is_asked_draws_nothing_again(ahead, work_done):
    torch.manual_seed(5)
    feed = Feed(Counting(), by="loader")
    for _ in range(3):
        feed.draw_ahead(ahead)
        feed.finish()
        batch = feed.take()
    torch.rand(2)
    if work_done:
        feed.finish()
    position = feed.position()
    rest = [] if work_done else [batch]
    if not work_done:
        rng_now = torch.get_rng_state()
        torch.set_rng_state(position.random.get("cpu", rng_now))
    while (one := feed.take()) is not END:
        rest.append(one)
    torch.manual_seed(77)
    again = Counting()
    resumed = Feed(again, position, by="loader")
    found = []
    while (one := resumed.take()) is not END:
        found.append(one)
    assert [index for index, _ in found] == [index for index, _ in rest]
    assert again.drawn == len(found)
    if work_done:
        assert found == rest


def test_a_loader_that_cannot_be_asked_is_refused():
    with pytest.raises(SetupError, match="has no state_dict"):
        Feed([1, 2], by="loader")
    position = Feed(Counting(), by="loader").position()
    with pytest.raises(StateError, match='saved with resume="loader", this loop has'):
        Feed(Counting(), position)
    with pytest.raises(StateError, match='saved with resume="count", this loop has'):
        Feed(Counting(), Feed([1]).position(), by="loader")


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata 0.11 with torch 2.13
@pytest.mark.parametrize("workers", [0, 2])
def test_torchdata(workers):
    """Without random augmentation it comes back to the same batches, with workers, too."""
    torchdata = pytest.importorskip("torchdata.stateful_dataloader")

    def loader():
        generator = torch.Generator().manual_seed(3)
        return torchdata.StatefulDataLoader(
            list(range(20)), batch_size=2, shuffle=True, num_workers=workers, generator=generator
        )

    feed = Feed(loader(), by="loader")
    for _ in range(3):
        feed.draw_ahead(1)
        feed.take()
        feed.finish()
    feed.draw_ahead(1)
    position = feed.position()
    assert first_foreign(position.loader) is None
    rest = []
    while (one := feed.take()) is not END:
        rest.append(one.tolist())
    resumed = Feed(loader(), position, by="loader")
    found = []
    while (one := resumed.take()) is not END:
        found.append(one.tolist())
    assert found == rest
    assert len(found) == 7
