"""The checker against its labelled sets: what is expected is found, and nothing else."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import pytest

from instep.check.fixing import fix_unit
from instep.check.judge import Project, judge
from instep.check.sources import read_units, units_from_bytes
from instep.rules import Severity
from instep.rules.registry import rulebook
from tests.check.labelled.labels import is_right, labels
from tests.check.labelled.test_labels import (
    BLOCKS,
    RIGHT,
    RIGHT_PROJECTS,
    WRONG,
    WRONG_PROJECTS,
    named,
    text,
)

BY_HAND = {
    "first/wrong/ins302_after_the_update_method",
    "second/wrong/ins103_patch_method_steps",
    "second/wrong/ins302_clip_in_the_logging_helper",
    "second/wrong/ins305_apply_helper",
    "second/wrong/ins401_begin_epoch_hook",
}
"""What is wrong there is spread over functions, and no edit of one of them mends it."""


class Found(NamedTuple):
    """A finding: where, what and how bad."""

    path: str
    line: int
    code: str
    severity: Severity


class Wanted(NamedTuple):
    """A label, in the file that it is in."""

    path: str
    kind: str
    codes: frozenset[str]
    line: int


def found_in(path):
    units = read_units(path)
    return [shown(finding) for unit in units for finding in judge(unit).findings]


def shown(finding):
    place = finding.place
    return Found(place.path, place.line, finding.code, finding.severity)


def labels_in(path):
    return [Wanted(str(path), *label) for label in labels(text(path))]


def compare(found, wanted):
    """Say what is missing and what is too much; findings of severity info may stand anywhere."""
    said = Counter((each.path, each.line, each.code) for each in found)
    told = [(w.path, w.line, code) for w in wanted if w.kind == "expect" for code in w.codes]
    missing = [place for place in told if not said[place]]
    missing += [group for group in grouped(wanted) if not said.keys() & group]
    allowed = {(each.path, each.line, code) for each in wanted for code in each.codes}
    loud = [each for each in found if each.severity >= Severity.WARNING]
    return missing, [each for each in loud if (each.path, each.line, each.code) not in allowed]


def grouped(wanted):
    """Return the places of `expect-one` labels; those that share a code stand for one finding."""
    groups = []
    for each in wanted:
        if each.kind == "expect-one":
            here = {(each.path, each.line, code) for code in each.codes}
            same = [group for group in groups if each.codes & {code for _, _, code in group}]
            groups = [group for group in groups if group not in same]
            groups.append(here.union(*same))
    return groups


@pytest.mark.parametrize("path", WRONG, ids=named)
def test_a_wrong_loop_is_found(path):
    assert compare(found_in(path), labels_in(path)) == ([], [])


@pytest.mark.parametrize("path", RIGHT, ids=named)
def test_a_right_loop_is_left_alone(path):
    assert compare(found_in(path), []) == ([], [])


def one_block(path, block):
    return pytest.param(path, block, id=f"{path.stem}-{block.line}")


@pytest.mark.parametrize(("path", "block"), [one_block(*each) for each in BLOCKS])
def test_a_block_of_an_article(path, block):
    [unit] = [u for u in read_units(path) if u.locator.spots[0].line == block.line + 1]
    found = [shown(finding) for finding in judge(unit).findings]
    wanted = [] if is_right(block.source) else labels(block.source)
    assert compare(found, [Wanted(str(path), k, c, block.line + at) for k, c, at in wanted]) == (
        [],
        [],
    )


@pytest.mark.parametrize("folder", WRONG_PROJECTS + RIGHT_PROJECTS, ids=named)
def test_a_project(folder, monkeypatch):
    monkeypatch.chdir(folder)
    project = Project()
    found, wanted = set(), []
    for path in sorted(folder.rglob("*.py")):
        path = path.relative_to(folder)
        for unit in read_units(path):
            judged = judge(unit, project=project)
            found |= {shown(finding) for finding in (*judged.findings, *judged.elsewhere)}
        if folder in WRONG_PROJECTS:
            wanted += labels_in(path)
    assert compare(found, wanted) == ([], [])


def counted(unit):
    return Counter(finding.code for finding in judge(unit).findings)


@pytest.mark.parametrize("path", WRONG, ids=named)
def test_fixes_mend_what_is_labelled_and_break_nothing(path):
    codes = frozenset().union(*(label.codes for label in labels(text(path))))
    [unit] = read_units(path)
    before = counted(unit)
    done = fix_unit(unit, unsafe=True, judge=judge, accept=lambda unit, findings: findings)
    assert bool(done.fixed) == (done.text != unit.text)
    data = unit.to_bytes(unit.write_back(done.text))
    [again] = units_from_bytes(data, unit.path)
    assert again.text == done.text
    after = counted(again)
    assert not after - before
    if not any(hasattr(rulebook()[code], "mend") for code in codes):
        assert not codes & {finding.code for finding in done.fixed}
    elif named(path) in BY_HAND:
        assert done.text == unit.text
    else:
        assert not codes & set(after)


@pytest.mark.parametrize("path", RIGHT, ids=named)
def test_fixes_leave_a_right_loop_as_it_is(path):
    [unit] = read_units(path)
    done = fix_unit(
        unit,
        unsafe=True,
        judge=judge,
        accept=lambda unit, findings: [f for f in findings if f.severity > Severity.INFO],
    )
    assert done.text == unit.text


def test_what_is_mended_by_hand_is_there():
    assert {named(path) for path in WRONG} >= BY_HAND
