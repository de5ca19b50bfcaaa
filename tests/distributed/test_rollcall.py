"""Who is missing is said at once where it can be known, and after a while otherwise."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest
from torch import distributed

from instep.engine.ranks import rollcall
from instep.engine.ranks.rollcall import RollCall
from instep.engine.ranks.world import Ranks


class Group:
    """Stands for a process group: only its store is asked."""


@pytest.fixture
def group(monkeypatch):
    store, made = distributed.HashStore(), Group()
    monkeypatch.setattr(rollcall, "_made_with", lambda _: store)
    return made


def crew_of(group, world):
    """The roll calls of all ranks, as each would make its own."""
    calls = []
    for rank in range(world):
        rollcall._counted.pop(group, None)
        calls.append(RollCall(Ranks(rank, world, group, "replicas")))
    return calls


def together(calls, present, *, is_closed, waited=1.0):
    """Let these ranks call; return what each has found, and how long it took all of them."""
    found = {}

    def work(rank):
        found[rank] = calls[rank].call(7, waited, is_closed=is_closed)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in present]
    start = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found, time.monotonic() - start


def test_it_ends_when_everybody_has_answered(group):
    found, seconds = together(crew_of(group, 3), [0, 1, 2], is_closed=False)
    assert [each.ranks for each in found.values()] == [[False] * 3] * 3
    assert seconds < rollcall.ROLL_CALL / 2


def test_it_ends_when_one_is_left_where_a_connection_was_closed(group):
    found, seconds = together(crew_of(group, 3), [0, 2], is_closed=True)
    assert [each.ranks for each in found.values()] == [[False, True, False]] * 2
    assert seconds < rollcall.ROLL_CALL / 2


@pytest.mark.parametrize(("present", "is_closed"), [([0, 2], False), ([0], True)])
def test_it_waits_where_nothing_can_be_known_yet(group, monkeypatch, present, is_closed):
    monkeypatch.setattr(rollcall, "ROLL_CALL", 0.5)
    found, seconds = together(crew_of(group, 3), present, is_closed=is_closed)
    assert all(each.ranks == [rank not in present for rank in range(3)] for each in found.values())
    assert seconds > 0.5


def test_who_answers_is_not_missing_however_late(group):
    """It had been busy when the connection was closed, and comes to its collective only now."""
    calls = crew_of(group, 3)
    first = threading.Thread(target=calls[0].call, args=(7, 5.0), kwargs={"is_closed": True})
    first.start()
    assert calls[2].call(7, 0.0, is_closed=True).ranks == [False, True, False]
    first.join()


def test_who_gave_up_has_said_why(group):
    calls = crew_of(group, 3)
    calls[1].leave(7, "OSError: no such disk")
    found, seconds = together(calls, [0], is_closed=True)
    assert found[0].ranks == [False, True, False]
    assert found[0].reasons == {1: "OSError: no such disk"}
    assert seconds < rollcall.ROLL_CALL / 2


def test_reasons_of_rounds_that_are_over_are_not_told(group):
    calls = crew_of(group, 3)
    for rank in (0, 1, 2):
        calls[rank].leave(6, "a break, of all ranks")
    found, _ = together(calls, [0, 2], is_closed=True)
    assert found[0].ranks == [False, True, False]
    assert found[0].reasons == {}


def test_steppers_of_one_group_do_not_hear_each_other(group):
    ranks = [Ranks(rank, 2, group, "replicas") for rank in range(2)]
    of_another = RollCall(ranks[1])
    of_another.leave(9, "for another stepper")
    found = RollCall(ranks[0]).call(7, 1.0, is_closed=True)
    assert found.reasons == {}
    assert found.ranks == [False, True]


@pytest.mark.parametrize(
    ("world", "agent", "expected"),
    [
        (2, "", [True, False]),
        (3, "", [True, False, False]),
        (3, "True", [False, False, False]),
    ],
)
def test_a_store_that_went_with_its_process(monkeypatch, world, agent, expected):
    """Rank 0 held it, unless torchrun does."""
    master = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    client = distributed.TCPStore(
        "127.0.0.1", master.port, timeout=timedelta(seconds=600), wait_for_workers=False
    )
    monkeypatch.setattr(rollcall, "_made_with", lambda _: distributed.PrefixStore("a", client))
    monkeypatch.setattr(distributed, "get_process_group_ranks", lambda _: list(range(world)))
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", agent)
    monkeypatch.setattr(rollcall, "RECONNECT", 0.5)
    del master
    call = RollCall(Ranks(1, world, Group(), "replicas"))
    start = time.monotonic()
    assert call.call(7, 1.0, is_closed=True).ranks == expected
    # Of two it is known without looking.
    assert time.monotonic() - start < (0.3 if world == 2 else rollcall.ROLL_CALL)
    assert call.call(7, 1.0, is_closed=False).ranks == [False] * world


def test_who_has_left_without_a_word_to_the_others_is_silent(group):
    first, second, third = crew_of(group, 3)
    assert not first.is_silent()
    # It has sent what it had to say, and goes on later.
    second.leave(7, "a mistake")
    assert not first.is_silent()
    third.leave(8, "interrupted", is_silent=True)
    assert first.is_silent()
    assert second.is_silent()


def test_a_store_that_cannot_be_asked_tells_of_nobody(group, monkeypatch):
    (first,) = crew_of(group, 1)
    monkeypatch.setattr(rollcall, "store_of", lambda _: None)
    assert not first.is_silent()

    class Gone:
        def add(self, *_):
            raise RuntimeError("connection reset")

    monkeypatch.setattr(rollcall, "store_of", lambda _: Gone())
    assert not first.is_silent()
