"""Programs of all kinds: none makes the checker fail, and fixes never make one worse."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

from hypothesis import given, settings

from instep.check.config import Config
from instep.check.fixing import fix_unit
from instep.check.judge import judge
from instep.check.one import check_bytes
from instep.check.options import Settings
from instep.check.sources import units_from_bytes
from instep.check.tools import load
from instep.rules.registry import names
from tests.check.programs import ARTICLES, SOURCES, damaged, programs, rearranged

MOST_PATHS = 200  # of one program: what cannot be known is not tried in every combination
TOOLS = load()
USUAL = settings().max_examples


def unit_of(text):
    [unit] = units_from_bytes(text.encode(), "a.py")
    return unit


def counted(findings):
    return Counter(finding.code for finding in findings)


def mended(unit):
    return fix_unit(unit, unsafe=True, judge=judge, accept=lambda unit, findings: findings)


@settings(max_examples=2 * USUAL)
@given(programs())
def test_every_program_is_judged(text):
    unit = unit_of(text)
    judgement = judge(unit)
    lines = text.split("\n")
    assert judgement.loops <= MOST_PATHS
    assert judgement.elsewhere == ()
    for finding in judgement.findings:
        assert finding.name == names()[finding.code]
        assert finding.message.endswith(".")
        for place in (finding.place, *(related.place for related in finding.related)):
            assert place.path == "a.py"
            assert 0 <= place.column <= len(lines[place.line - 1].encode())
    again = judge(unit)
    assert (again.findings, again.unjudged) == (judgement.findings, judgement.unjudged)


@settings(max_examples=2 * USUAL)
@given(programs() | rearranged())
def test_fixes_never_make_a_program_worse(text):
    unit = unit_of(text)
    before = judge(unit).findings
    done = mended(unit)
    ast.parse(done.text)
    assert bool(done.fixed) == (done.text != text)
    if not before:
        assert done.text == text
    after = unit_of(done.text)
    assert not counted(judge(after).findings) - counted(before)
    again = mended(after)
    assert (again.text, again.fixed) == (done.text, ())


def outcome_of(text, kind, *, fixes):
    path = "a.md" if kind == "markdown" else "a.py"
    made = Settings(Config(Path.cwd()), names(), fixes=fixes, unsafe=True)
    return check_bytes(text.encode("utf-8"), path, kind, made, TOOLS, named=True)


@settings(max_examples=4 * USUAL)
@given(damaged("python"))
def test_damaged_programs_are_judged_or_refused(text):
    outcome = outcome_of(text, "python", fixes=False)
    assert outcome.diagnostic is None or outcome.diagnostic.kind != "crashed", outcome.diagnostic
    if outcome.diagnostic is not None:
        assert (outcome.findings, outcome.loops) == ((), 0)


@settings(max_examples=2 * USUAL)
@given(damaged("python"))
def test_damaged_programs_are_mended_or_left(text):
    outcome = outcome_of(text, "python", fixes=True)
    assert outcome.diagnostic is None or outcome.diagnostic.kind != "crashed", outcome.diagnostic
    if outcome.after is not None:
        ast.parse(outcome.after)
        assert outcome.fixed


@given(damaged("markdown"))
def test_damaged_articles_are_judged_block_by_block(text):
    outcome = outcome_of(text, "markdown", fixes=False)
    assert outcome.diagnostic is None


def test_there_is_something_to_damage():
    assert len(SOURCES) > 200
    assert len(ARTICLES) > 3
