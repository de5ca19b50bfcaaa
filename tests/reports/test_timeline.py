from collections import Counter

from instep.reports.record import Owner, Record
from instep.reports.timeline import MOST_ROWS, timeline
from instep.trace import Backward, Step
from tests.reports.jobs import long, small


def test_moments_name_their_events():
    drawn = timeline(small())
    kinds = Counter(drawn["events"][which]["kind"] for which in drawn["which"])
    assert kinds == {
        "backward": 4, "clip": 2, "clear": 2, "step": 1, "skipped": 1, "unscale": 1, "epoch": 1,
    }  # fmt: skip
    assert drawn["times"] == sorted(drawn["times"])
    assert drawn["rows"] == [{"name": "optimizer", "updates": 2, "skipped": 1}]
    assert [span[3:] for span in drawn["spans"]] == [[2, 1, ""], [2, 2, "nonfinite"]]
    epoch = next(event for event in drawn["events"] if event["kind"] == "epoch")
    assert epoch["rows"] is None
    assert drawn["gap"] is None


def test_what_was_left_out_is_a_gap():
    drawn = timeline(long())
    first, second, count = drawn["gap"]
    assert first < second
    assert count == 2000
    assert not any(first < time < second for time in drawn["times"])


def test_gradients_of_no_optimizer_have_no_row():
    events = (Backward(()), Backward(("o", "unknown")), Step("o"))
    record = Record(title="", optimizers=(Owner("o", updates=1),), events=events)
    drawn = timeline(
        Record(
            title="",
            optimizers=record.optimizers,
            events=events,
            first=((0.1, 0), (0.2, 1), (0.3, 2)),
        )
    )
    assert [event["rows"] for event in drawn["events"]] == [[0], [0]]
    assert drawn["which"] == [0, 1]


def test_rows_are_bounded():
    owners = tuple(Owner(f"o{number}", updates=1) for number in range(100))
    events = tuple(Step(owner.name) for owner in owners)
    moments = tuple((0.1 * number, number) for number in range(100))
    drawn = timeline(Record(title="", optimizers=owners, events=events, first=moments))
    assert len(drawn["rows"]) == len(drawn["times"]) == len(drawn["spans"]) == MOST_ROWS
