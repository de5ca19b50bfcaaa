import json
from collections import Counter

from instep.reports import chrome
from tests.reports.jobs import evil, long, small


def read(record):
    return json.loads(chrome.render(record))


def test_windows_are_slices_on_the_track_of_their_optimizer():
    whole = read(small())
    events = whole["traceEvents"]
    names = {
        event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"
    }
    assert names == {0: "job", 1: "optimizer"}
    first, second = (event for event in events if event["ph"] == "X")
    assert (first["name"], first["tid"], first["args"]["backwards"]) == ("window 1", 1, 2)
    assert (first["ts"], first["dur"]) == (100_000.0, 400_000.0)
    assert (second["name"], second["cname"]) == ("skipped 2", "terrible")
    assert second["args"]["skipped"] == "nonfinite"
    assert whole["otherData"]["torch"] == "2.13.0"


def test_happenings_are_instants():
    instants = [event for event in read(small())["traceEvents"] if event["ph"] == "i"]
    assert Counter(event["cat"] for event in instants) == {
        "backward": 4, "clip": 2, "clear": 2, "step": 1, "skipped": 1, "unscale": 1, "epoch": 1,
    }  # fmt: skip
    step = next(event for event in instants if event["cat"] == "step")
    assert step["s"] == "t"
    assert step["args"]["line"] == "train.py:15"
    assert step["args"]["source"] == "optimizer.step()"
    epoch = next(event for event in instants if event["cat"] == "epoch")
    assert (epoch["s"], epoch["tid"]) == ("p", 0)


def test_numbers_are_counters_and_only_finite_ones():
    counters = [event for event in read(small())["traceEvents"] if event["ph"] == "C"]
    values = {}
    for event in counters:
        values.setdefault(event["name"], []).append(event["args"]["value"])
    assert values["loss"] == [2.0, 1.5]
    assert values["gradient norm"] == [1.0]
    assert values["gradient norm before clipping"] == [7.5]


def test_every_event_has_what_the_format_asks_for():
    for record in (small(), long(), evil()):
        for event in read(record)["traceEvents"]:
            assert {"ph", "pid", "tid", "name"} <= event.keys()
            assert event["ph"] in "MXiC"
            assert event["ph"] == "M" or event["ts"] >= 0
            assert event["ph"] != "X" or event["dur"] >= 0


def test_several_ranks_are_several_processes():
    events = read(small(rank=1, ranks=2))["traceEvents"]
    assert {event["pid"] for event in events} == {1}
    assert events[0]["args"]["name"] == "instep: train.py (rank 1)"


def test_the_file_is_written(tmp_path):
    chrome.write(small(), tmp_path / "trace.json")
    assert json.loads((tmp_path / "trace.json").read_text()) == read(small())
