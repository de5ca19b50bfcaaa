"""Waiting for a device that waits for other ranks: it ends, and does not keep anybody busy."""

from __future__ import annotations

import pytest
import torch

from instep.engine.ranks import wire


class Clock:
    """A clock that goes only while somebody sleeps, or by a little at each look."""

    def __init__(self):
        self.now, self.slept = 0.0, []

    def monotonic(self):
        self.now += 1e-6
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(wire, "time", made)
    return made


def never():
    raise AssertionError("nobody had to look")


def test_what_is_there_is_not_waited_for(clock):
    wire.wait_for(lambda: True, never)
    assert clock.slept == []


def test_what_comes_is_taken_within_a_pause(clock):
    wire.wait_for(lambda: clock.now >= 0.2, never)
    assert clock.now < 0.2 + 2 * wire.PAUSE
    assert len([each for each in clock.slept if each]) < 0.2 / wire.PAUSE + 2


def test_while_nothing_comes_it_is_asked_for_now_and_then(clock):
    looks = []

    def look():
        looks.append(clock.now)
        if len(looks) == 4:
            raise wire.LateError("in vain")

    with pytest.raises(wire.LateError, match="in vain"):
        wire.wait_for(lambda: False, look)
    assert looks == pytest.approx(
        [1 * wire.LOOK, 2 * wire.LOOK, 3 * wire.LOOK, 4 * wire.LOOK], 0.01
    )


@pytest.mark.parametrize("timeout", [0.5, 2.0, 60.0, 600.0, 7200.0])
def test_there_is_time_left_to_say_who_is_missing(timeout):
    assert 0.7 * timeout < wire.patience(timeout) < timeout
    assert timeout - wire.patience(timeout) <= wire.MARGIN


def test_on_the_host_it_is_the_same_tensor():
    class Work:
        waited = 0

        def wait(self):
            self.waited += 1

    work, whole = Work(), torch.arange(4)
    here = wire.host_of(whole)
    assert here is whole
    assert wire.on_host(whole, here, work, never) is whole
    assert work.waited == 1
