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


def test_what_is_there_is_not_waited_for(clock):
    wire.wait_until(lambda: True, 1.0)
    assert clock.slept == []


def test_what_comes_is_taken_within_a_pause(clock):
    wire.wait_until(lambda: clock.now >= 0.5, 1.0)
    assert clock.now < 0.5 + 2 * wire.PAUSE
    assert len([each for each in clock.slept if each]) < 0.5 / wire.PAUSE + 2


def test_what_does_not_come_is_an_error_in_time(clock):
    with pytest.raises(wire.LateError, match=r"nothing came within 1\.0 s"):
        wire.wait_until(lambda: False, 1.0)
    assert 1.0 < clock.now < 1.01


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
    assert wire.on_host(whole, work, None) is whole
    assert work.waited == 1
