"""The checker and the watcher on the same files: what the one reads, the other one runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from instep.check.judge import judge
from instep.check.sources import read_units
from instep.rules import Severity
from instep.rules.registry import rulebook
from tests.watching.scenes import CANNOT_RUN, SCENES
from tests.watching.stage import Scene, show

LABELLED = Path(__file__).parents[1] / "check" / "labelled"
RIGHT = [
    path for name in ("first", "second") for path in sorted(LABELLED.glob(f"{name}/right/*.py"))
]
RUNNING = [path for path in RIGHT if path.stem not in CANNOT_RUN]

CODES = [code for code, rule in rulebook().items() if getattr(rule, "SEEN", None) != "watch"]
"""Rules that the checker has."""

WATCHED = [code for code in rulebook() if code not in CODES and code != "INS606"]
"""Rules that need a running job; that of ranks needs two of them (test_agreement)."""

ENDS = {
    "INS304": (RuntimeError, "step\\(\\) has already been called"),
    "INS305": (AssertionError, "No inf checks"),
    "INS306": (AssertionError, "_scale is None"),
    "INS307": (RuntimeError, "unscale_\\(\\) has already been called"),
    "INS501": (AttributeError, "'NoneType' object has no attribute 'norm'"),
}
"""Mistakes that PyTorch ends a job for."""

OTHERWISE = {"INS601": "INS605"}
"""What the watcher calls by another name: it sees that graphs stay alive, and not why."""


@pytest.fixture(autouse=True)
def one_thread():
    """Use one thread: the loops are tiny, and threads wait for one another."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def found(findings):
    return {(finding.code, finding.place.line) for finding in findings}


def read(path):
    """Return what `instep check` finds."""
    return [finding for unit in read_units(path) for finding in judge(unit).findings]


def example(code, kind, folder):
    path = folder / f"{code.lower()}.py"
    path.write_text(getattr(rulebook()[code], kind), encoding="utf-8")
    return path


@pytest.mark.parametrize("code", CODES)
def test_what_is_wrong_is_found_by_both(code, tmp_path):
    path = example(code, "BAD", tmp_path)
    shown = show(path, SCENES.get(code, Scene()))
    assert shown.faults == ()
    if code in ENDS:
        kind, text = ENDS[code]
        with pytest.raises(kind, match=text):
            raise shown.error
    else:
        assert shown.error is None
        assert shown.updates > 1
    if code in OTHERWISE:
        codes = {finding.code for finding in shown.findings}
        assert codes == {OTHERWISE[code]} & rulebook().keys()
    else:
        [wrong] = found(read(path))
        assert wrong[0] == code
        assert found(shown.findings) == {wrong}


@pytest.mark.parametrize("code", CODES)
def test_what_is_right_is_left_alone_by_both(code, tmp_path):
    path = example(code, "GOOD", tmp_path)
    shown = show(path, SCENES.get(code, Scene()))
    assert (shown.error, shown.faults) == (None, ())
    assert shown.updates > 1
    assert found(read(path)) == found(shown.findings) == set()


@pytest.mark.parametrize("code", WATCHED)
def test_what_only_a_running_job_shows(code, tmp_path):
    path = example(code, "BAD", tmp_path)
    shown = show(path, Scene())
    lines = path.read_text(encoding="utf-8").splitlines()
    [line] = [number for number, text in enumerate(lines, 1) if text.endswith("# <- here")]
    assert (shown.error, shown.faults) == (None, ())
    assert found(shown.findings) == {(code, line)}
    assert found(read(path)) == set()
    right = show(example(code, "GOOD", tmp_path), Scene())
    assert (right.error, right.faults) == (None, ())
    assert found(right.findings) == set()


@pytest.mark.parametrize("path", RUNNING, ids=lambda path: path.stem)
def test_a_right_loop_runs_clean(path):
    shown = show(path, SCENES.get(path.stem, Scene()))
    assert (shown.error, shown.faults) == (None, ())
    loud = [finding for finding in shown.findings if finding.severity > Severity.INFO]
    assert found(loud) == set()
    # What is only mentioned is mentioned by the checker as well.
    assert found(shown.findings) <= found(read(path))


def test_loops_that_cannot_run_are_there():
    assert CANNOT_RUN.keys() <= {path.stem for path in RIGHT}
    assert SCENES.keys() <= {path.stem for path in RUNNING} | set(CODES)
    assert not CANNOT_RUN.keys() & SCENES.keys()
