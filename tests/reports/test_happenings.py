import pytest

from instep.reports.happenings import KINDS, happening, quoted
from instep.trace import (
    Backward,
    Clip,
    Drawn,
    EpochEnd,
    Place,
    Step,
    Unscale,
    WindowDiscarded,
    Zero,
)
from tests.reports.jobs import at, small

CASES = [
    (Backward(("o",)), "backward", "backward", ""),
    (
        Backward(("o",), factor=0.25, reduction="sum", scaled=True, models=("a", "b")),
        "backward",
        "backward",
        "factor 0.25, a sum loss, scaled, of a, b",
    ),
    (Zero(("o",)), "clear", "clear", ""),
    (Zero(("o",), set_to_none=False), "clear", "clear", "filled with zeros"),
    (Zero(("o",), complete=False), "clear", "clear", "not all of the parameters"),
    (Step("o", skipped="exception"), "skipped", "step that raised", ""),
    (WindowDiscarded("o", "exception"), "clear", "window discarded", "exception"),
    (Unscale("o", "scaler"), "unscale", "unscale", "by scaler"),
    (Unscale("o"), "unscale", "unscale", ""),
    (Clip(("o",), "value", 0.5), "clip", "clip", "by value at 0.5"),
    (Clip(("o",)), "clip", "clip", "by norm"),
    (Step("o"), "step", "step", ""),
    (Step("o", scaler="scaler"), "step", "step", "through scaler"),
    (Step("o", skipped="nonfinite"), "skipped", "skipped step", "nonfinite"),
    (EpochEnd("loader", batches=1200), "epoch", "end of epoch", "loader after 1,200 batches"),
    (EpochEnd(None), "epoch", "end of epoch", "a loader"),
]


@pytest.mark.parametrize(("event", "kind", "label", "note"), CASES)
def test_words(event, kind, label, note):
    shown = happening(event, small())
    assert (shown.kind, shown.label, shown.note) == (kind, label, note)
    assert shown.owners == event.touches()
    assert kind in KINDS


def test_pieces_of_a_batch_and_batches_are_not_drawn():
    assert happening(Drawn("loader"), small()) is None
    assert happening(EpochEnd("loader", of="other"), small()) is None


def test_the_users_line_is_quoted():
    shown = happening(Step("o", place=at(15)), small())
    assert (shown.where, shown.code) == ("train.py:15", "optimizer.step()")
    assert quoted(Place("x.py", 1, snippet="a\nb"), small()) == "a"
    assert quoted(Place("x.py", 1), small()) == ""


def test_nothing_invisible_is_shown():
    shown = happening(Step("o", skipped="\x1b\u202e", place=Place("\x1b.py", 1)), small())
    assert shown.note == "\\x1b\\u202e"
    assert shown.where == "\\x1b.py:1"
