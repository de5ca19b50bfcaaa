from instep.rules.reading import (
    distinct,
    is_hidden,
    is_managed,
    is_part,
    names,
    only_measures,
    since_clear,
    sure_size,
)
from instep.rules.view import View
from instep.trace import Created, Drawn, GradEdited, Opaque, Trace, windows
from tests.rules.lines import JOB, MANAGED, O, backward, clip, one, step, zero


def size(*events):
    trace = Trace(events)
    return sure_size(View(trace), windows(trace)["optimizer"][0])


def test_a_number_that_the_checker_made_up_is_not_sure():
    window = [backward(), backward(), backward()]
    assert size(JOB, *window, step(every=3)) is None
    assert size(JOB, *window, step(every=3, every_written="literal")) == 3
    assert size(JOB, *window, step(every=4, every_written="literal")) is None
    assert size(*window, step()) == 3  # somebody watched it


def test_the_length_of_a_loop_over_pieces_is_sure():
    window = [e for i in range(2) for e in (Drawn("pieces", i, of="loader"), backward())]
    assert size(JOB, Created("pieces", "loader", {"length": 2}), *window, step()) == 2
    assert size(JOB, Created("pieces", "loader"), *window, step()) is None


def test_managed():
    assert is_managed(View(Trace([MANAGED])))
    assert not is_managed(View(Trace([JOB])))
    assert not is_managed(View(Trace()))


def test_one_finding_for_a_place():
    from instep.rules import clip_inside_window

    finding = one(clip_inside_window, backward(), clip(), backward(), clip(), step())
    assert list(distinct([None, finding, finding])) == [finding]


def test_what_an_update_is_made_of():
    kept = (backward(), step())
    trace = [backward(), zero(), *kept]
    assert since_clear(windows(trace)["optimizer"][0]) == kept
    assert since_clear(windows(kept)["optimizer"][0]) == kept


def test_small_questions():
    assert only_measures(clip(limit=float("inf")))
    assert not only_measures(clip(limit=1.0))
    assert not only_measures(clip(limit=None))
    assert is_hidden([Opaque(O, "f(optimizer)")])
    assert is_hidden([GradEdited(O)])
    assert not is_hidden([GradEdited(O, 0.5), backward()])
    assert is_part("model.head.weight", "model.head")
    assert not is_part("model", "model.head")
    assert names(("a", "b")) == ("a", "b")
    assert names(None) is None
    assert names(True) is None
