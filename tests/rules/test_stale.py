from __future__ import annotations

from copy import copy

from instep.rules.stale import stale_updates
from instep.rules.view import View
from instep.trace import Created, Trace
from tests.rules.loops import backward, plain, step, zero


def stale(events):
    return list(stale_updates(View(Trace(events))))


def test_the_first_update_with_old_gradients():
    (found,) = stale([backward(), step(), backward(line=20), step(), backward(line=30), step()])
    assert found.backward.place.line == 20
    assert found.is_never_cleared
    assert found.mistaken is None


def test_a_later_clear_is_seen():
    (found,) = stale([backward(), step(), backward(), step(), zero(), backward(), step()])
    assert not found.is_never_cleared


def test_the_clear_that_was_meant_for_it():
    made = [Created(id_, "optimizer", {"models": (id_,), "written": True}) for id_ in "ab"]
    body = [zero("a"), backward("a"), step("a"), zero("a", line=20), backward("b"), step("b")]
    (found,) = stale([*made, *body, *map(copy, body)])
    assert found.optimizer == "b"
    assert found.mistaken.place.line == 20


def test_nothing_is_stale_in_a_right_loop():
    assert stale(plain([zero(), backward(), step()])) == []
