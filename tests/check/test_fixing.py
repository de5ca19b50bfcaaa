"""Proofs, with a judge that counts words: "bad" and "worse" are findings, "blind" is unjudged."""

import ast
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from instep.check import fixing
from instep.check.sources import units_from_bytes
from instep.rules import edits
from instep.rules.finding import Finding, Fix, Severity
from instep.trace import Place


class Judgement(NamedTuple):
    findings: tuple
    unjudged: tuple
    loops: int
    nodes: dict
    elsewhere: tuple = ()
    work: int = 1
    views: tuple = ()


def judge(unit):
    nodes, findings, unjudged, elsewhere, loops = {}, [], [], [], 0
    for node in ast.walk(unit.tree):
        if isinstance(node, ast.For):
            loops += 1
        if not isinstance(node, ast.Name):
            continue
        place = unit.locator.place(node.lineno, node.col_offset)
        nodes[place] = node
        if node.id in CODES:
            findings.append(Finding(CODES[node.id], node.id, Severity.ERROR, place, "It is."))
        if node.id == "moved":
            there = Place("b.py", 1)
            elsewhere.append(Finding(CODES["bad"], "bad", Severity.ERROR, there, "It is."))
        if node.id == "blind":
            unjudged.append(SimpleNamespace(place=place, reason="unknown"))
    return Judgement(tuple(findings), tuple(unjudged), loops, nodes, tuple(elsewhere))


CODES = {"bad": "INS901", "worse": "INS902", "odd": "INS903"}


def renames(*names, is_safe=True):
    def mend(finding, source):
        for name in names:
            node = source.node(finding.place)
            yield Fix(f"call it {name}", edits.replace(node, name), is_safe=is_safe)

    return mend


@pytest.fixture
def rules(monkeypatch):
    book = {}
    monkeypatch.setattr(fixing, "rule", book.get)

    def rule(name, mend, apart=False):
        book[CODES[name]] = SimpleNamespace(mend=mend, APART=apart)

    return rule


def unit_of(text, path="a.py"):
    return units_from_bytes(text.encode(), path)[0]


def proved(text):
    unit = unit_of(text)
    judgement = judge(unit)
    return fixing.prove(unit, judgement.findings[0], judgement, judge=judge)


def fixed(text, unsafe=False, accept=lambda unit, findings: findings, path="a.py"):
    return fixing.fix_unit(unit_of(text, path), unsafe=unsafe, judge=judge, accept=accept)


def test_a_fix_that_helps_stands(rules):
    rules("bad", renames("good"))
    assert proved("bad = 1\n").title == "call it good"


@pytest.mark.parametrize("name", ["bad", "worse", "blind", "moved", "not python", "(", "bad = bad"])
def test_a_fix_that_does_not_help_falls(rules, name):
    rules("bad", renames(name))
    assert proved("bad = 1\n") is None


def test_a_fix_may_not_hide_what_was_judged(rules):
    rules("bad", renames("blind"))
    assert proved("bad = 1\nblind = 1\n") is None

    def drop(finding, source):
        loop = source.loops(source.node(finding.place))[0]
        yield Fix("drop the loop", edits.replace(loop, "pass"))

    rules("bad", drop)
    assert proved("for x in y:\n    bad()\n") is None


@pytest.mark.parametrize("is_shown", [True, False])
def test_a_rule_may_ask_for_more_than_its_silence(rules, is_shown):
    rules("bad", renames("good"))
    asked = fixing.rule("INS901")
    asked.is_mended = lambda before, after: is_shown
    assert (proved("bad = 1\n") is not None) is is_shown


def test_the_first_candidate_that_holds_is_taken(rules):
    rules("bad", renames("worse", "good", "fine"))
    assert proved("bad = 1\n").title == "call it good"


def test_candidates_are_bounded(rules):
    rules("bad", renames(*(f"bad + x{i}" for i in range(20)), "good"))
    assert proved("bad = 1\n") is None


def test_the_same_candidate_is_tried_once(rules):
    rules("bad", renames(*["worse"] * 20, "good"))
    seen = []

    def counting(unit):
        seen.append(unit.text)
        return judge(unit)

    unit = unit_of("bad = 1\n")
    judgement = judge(unit)
    assert fixing.prove(unit, judgement.findings[0], judgement, judge=counting) is not None
    assert seen == ["worse = 1\n", "good = 1\n"]


def test_a_report_judges_a_bounded_number_of_texts(rules):
    rules("bad", renames("worse", "good"))
    unit = unit_of("\n".join(f"x{i} = bad" for i in range(50)))
    found = fixing.with_fixes(unit, judge(unit), judge=judge)
    offered = [finding.fix is not None for finding in found]
    assert offered == [True] * 20 + [False] * 30
    long = unit_of(unit.text + "\n" * 30_000)
    found = fixing.with_fixes(long, judge(long), judge=judge)
    assert [finding.fix is not None for finding in found] == [True] + [False] * 49
    assert len(fixed(unit.text).fixed) == 50


def test_only_what_is_reported_gets_a_fix(rules):
    rules("bad", renames("good"))
    unit = unit_of("bad = 1\nbad = 2\n")
    judgement = judge(unit)
    found = fixing.with_fixes(unit, judgement, judge=judge, findings=judgement.findings[1:])
    assert [(f.place.line, f.fix.title) for f in found] == [(2, "call it good")]


def test_no_rule_no_mend_no_candidate(rules):
    assert proved("bad = 1\n") is None
    rules("bad", renames())
    assert proved("bad = 1\n") is None


def test_edits_that_meet_are_no_fix(rules):
    def twice(finding, source):
        yield Fix("twice", edits.replace(source.node(finding.place), "x") * 2)

    rules("bad", twice)
    assert proved("bad = 1\n") is None


def test_what_a_fix_brings_to_light_is_mended_with_it(rules):
    rules("bad", renames("worse"))
    rules("worse", renames("odd"))
    rules("odd", renames("good", is_safe=False))
    fix = proved("bad = 1\n")
    assert fix.title == "call it worse, and call it odd, and call it good"
    assert not fix.is_safe
    assert fixing.apply("bad = 1\n", fix.edits) == "good = 1\n"
    rules("odd", renames("bad"))
    assert proved("bad = 1\n") is None


def test_findings_with_their_fixes(rules):
    rules("bad", renames("good"))
    unit = unit_of("bad = worse\n")
    bad, worse = fixing.with_fixes(unit, judge(unit), judge=judge)
    assert bad.fix is not None
    assert worse.fix is None


def test_one_fix_after_another(rules):
    rules("bad", renames("good"))
    rules("worse", renames("better"))
    done = fixed("x = bad  # é\ny = worse; bad\n")
    assert done.text == "x = good  # é\ny = better; good\n"
    assert sorted(f.name for f in done.fixed) == ["bad", "bad", "worse"]
    assert all(f.fix for f in done.fixed)
    assert done.remaining == ()
    again = fixed(done.text)
    assert (again.text, again.fixed) == (done.text, ())


def test_a_clean_file_is_not_touched(rules):
    rules("bad", renames("good"))
    text = "x  =  1 ;\n\n\n\n"
    assert fixed(text) == fixing.Fixed(text, (), ())


def test_unsafe_fixes_are_made_only_on_request(rules):
    rules("bad", renames("good", is_safe=False))
    done = fixed("bad = 1\n")
    assert done.text == "bad = 1\n"
    assert done.remaining[0].fix.title == "call it good"
    assert fixed("bad = 1\n", unsafe=True).text == "good = 1\n"


def test_only_what_is_accepted_is_fixed(rules):
    rules("bad", renames("good"))
    done = fixed(
        "x = bad\ny = bad\n",
        accept=lambda unit, findings: [f for f in findings if f.place.line == 2],
    )
    assert done.text == "x = bad\ny = good\n"


def test_a_finding_in_another_file_cannot_be_mended(rules):
    def elsewhere(finding, source):
        node = source.node(Place("other.py", 1))
        if node is not None:
            yield Fix("never", ())

    rules("bad", elsewhere)
    assert proved("bad = 1\n") is None


def test_markdown_and_notebooks(rules):
    rules("bad", renames("good"))
    done = fixed("- so:\n\n  ```python\n  bad = 1\n  ```\n", path="a.md")
    assert done.text == "good = 1\n"
    notebook = '{"cells": [{"cell_type": "code", "source": ["!ls\\n", "bad = 1"]}], "metadata": {}}'
    unit = unit_of(notebook, "a.ipynb")
    done = fixed(notebook, path="a.ipynb")
    assert unit.write_back(done.text) == notebook.replace("bad", "good")


def test_what_is_dear_to_judge_is_judged_less_often(rules):
    rules("bad", renames("good"))
    unit = unit_of("\n".join(["bad = 1"] * 9))
    dear = judge(unit)._replace(work=100_000)
    offered = [f.fix is not None for f in fixing.with_fixes(unit, dear, judge=judge)]
    assert offered == [True] * 2 + [False] * 7


def everywhere(name):
    def mend(finding, source):
        nodes = [n for n in ast.walk(source.tree) if isinstance(n, ast.Name) and n.id == "bad"]
        yield Fix(f"call it {name}", sum((edits.replace(n, name) for n in nodes), ()))

    return mend


def counting(most=99):
    judged = []

    def count(unit):
        judged.append(unit.text)
        assert len(judged) <= most
        return judge(unit)

    return count, judged


def test_a_text_that_several_fixes_make_is_judged_once(rules):
    rules("bad", everywhere("good"))
    unit = unit_of("bad = 1\nbad = 2\nbad = 3\n")
    count, judged = counting()
    offered = fixing.with_fixes(unit, judge(unit), judge=count)
    assert judged == ["good = 1\ngood = 2\ngood = 3\n"]
    alone = [fixing.prove(unit, f, judge(unit), judge=judge) for f in judge(unit).findings]
    assert [finding.fix for finding in offered] == alone


def test_judgements_of_long_texts_are_not_kept(rules, monkeypatch):
    monkeypatch.setattr(fixing, "_MOST_KEPT", 2)
    rules("bad", everywhere("good"))
    unit = unit_of("bad = 1\nbad = 2\nbad = 3\n")
    count, judged = counting()
    assert all(f.fix for f in fixing.with_fixes(unit, judge(unit), judge=count))
    assert len(judged) == 3


def test_findings_that_stand_apart_are_proved_together(rules):
    rules("bad", renames("good"), apart=True)
    unit = unit_of("bad = 1\nbad = 2\nbad = 3\n")
    count, judged = counting()
    offered = fixing.with_fixes(unit, judge(unit), judge=count)
    assert judged == ["good = 1\ngood = 2\ngood = 3\n"]
    alone = [fixing.prove(unit, f, judge(unit), judge=judge) for f in judge(unit).findings]
    assert [finding.fix for finding in offered] == alone


@pytest.mark.parametrize("second", ["worse", "blind", "bad", "("])
def test_each_is_proved_by_itself_where_they_do_not_hold_together(rules, second):
    def mend(finding, source):
        name = "good" if finding.place.line != 2 else second
        yield Fix("rename it", edits.replace(source.node(finding.place), name))

    rules("bad", mend, apart=True)
    unit = unit_of("bad = 1\nbad = 2\nbad = 3\n")
    offered = fixing.with_fixes(unit, judge(unit), judge=judge)
    assert [finding.fix is not None for finding in offered] == [True, False, True]


def test_one_without_a_fix_leaves_the_others_to_themselves(rules):
    def mend(finding, source):
        if finding.place.line != 2:
            yield Fix("rename it", edits.replace(source.node(finding.place), "good"))

    rules("bad", mend, apart=True)
    unit = unit_of("bad = 1\nbad = 2\nbad = 3\n")
    offered = fixing.with_fixes(unit, judge(unit), judge=judge)
    assert [finding.fix is not None for finding in offered] == [True, False, True]
