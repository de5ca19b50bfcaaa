from __future__ import annotations

from instep.rules.accumulation import (
    closes_epoch,
    is_close,
    is_mixed,
    is_sum,
    judged,
    sizes,
    trained,
    updates,
    used_by_others,
)  # fmt: skip
from instep.rules.view import View
from instep.trace import Created, Drawn, EpochEnd, Trace
from tests.rules.loops import (
    MANAGED,
    backward,
    drawn,
    gated,
    opaque,
    pieces,
    plain,
    step,
    zero,
)  # fmt: skip


def view(events):
    return View(Trace(events))


def test_judged_leaves_out_what_others_manage():
    events = plain([backward("a", "b"), step("a"), step("b")])
    assert [name for name, _ in judged(view(events))] == ["a", "b"]
    assert [name for name, _ in judged(view([*events, opaque("a")]))] == ["b"]
    assert [name for name, _ in judged(view([MANAGED, *events[1:]]))] == []


def test_updates_are_closed_certain_and_without_closure():
    events = [
        backward(),
        step(),
        backward(),
        step(closure=True),
        backward().__class__(None),
        step(),
    ]
    assert [window.index for window, _ in updates(view(events).windows["sgd"])] == [0]


def test_losses_of_others():
    events = [backward("g", "d"), step("g"), backward("d"), step("d")]
    found = view(events)
    others = used_by_others(found, "d")
    assert others == {id(found.events[0])}
    assert is_mixed(found.windows["d"][0], others)
    assert not is_mixed(found.windows["g"][0], used_by_others(found, "d"))


def test_sizes_in_batches_and_in_pieces():
    (window, *_) = view(pieces(count=3, each=[backward()], after=[step()])).windows["sgd"]
    assert sizes(window) == {1, 3}
    (window, *_) = view(gated(3)).windows["sgd"]
    assert sizes(window) == {3}
    (window,) = view([backward(), backward(), step()]).windows["sgd"]
    assert sizes(window) == {2}


def test_loaders_of_a_validation_train_nothing():
    events = [drawn(), backward(), Drawn("val"), EpochEnd("val"), drawn(), backward()]
    assert trained(view(events)) == {"loader"}


def test_the_last_window_of_an_epoch():
    windows = view(gated(2, batches=4, epochs=1)).windows["sgd"]
    assert [closes_epoch(windows, at, frozenset({"loader"})) for at in (0, 1)] == [False, True]
    assert not closes_epoch(windows, len(windows) - 1, frozenset({"loader"}))


def test_sums():
    facts = view([Created("loss", "loss", {"reduction": "sum"}), zero()])
    assert is_sum(facts, backward())
    assert not is_sum(facts, backward(reduction="mean"))
    assert not is_sum(facts, backward(loss=None))


def test_unknown_factors_are_close_to_nothing():
    assert is_close(1 / 3 * 3, 1.0)
    assert not is_close(None, 1.0)
