"""Every rule's own examples: the bad one is found, the good one is not, the fixed one is clean."""

import ast

import pytest

from instep.check.fixing import apply, fix_unit, with_fixes
from instep.check.judge import judge
from instep.check.sources import units_from_bytes
from instep.rules.finding import Severity
from instep.rules.registry import rulebook, watched

RULES = {code: rule for code, rule in rulebook().items() if code not in watched()}
MENDED = [code for code, rule in RULES.items() if hasattr(rule, "mend")]
# What users are promised a fix of, besides whatever else has one.
PROMISED = """
    missing-zero-grad cleared-before-step step-per-patch unscaled-accumulation leftover-window
    off-by-one-window clip-inside-window clip-after-step clip-before-unscale scaler-without-update
    scaler-bypassed deprecated-cuda-amp scheduler-before-step scheduler-per-micro-batch
    loss-graph-kept zero-fill
"""
MARK = "  # <- here"


def unit_of(text):
    [unit] = units_from_bytes(text.encode(), "train.py")
    return unit


def everything(unit, findings):
    return findings


def fixed(text, unsafe=True):
    return fix_unit(unit_of(text), unsafe=unsafe, judge=judge, accept=everything)


def test_every_promised_fix_is_there():
    assert set(PROMISED.split()) <= {RULES[code].NAME for code in MENDED}


@pytest.mark.parametrize("code", RULES)
def test_bad_is_found_where_it_is_marked(code):
    rule = RULES[code]
    [line] = [n for n, text in enumerate(rule.BAD.splitlines(), 1) if text.endswith(MARK)]
    findings = judge(unit_of(rule.BAD)).findings
    assert [(finding.code, finding.place.line) for finding in findings] == [(code, line)]


@pytest.mark.parametrize("code", rulebook())
def test_good_is_clean(code):
    good = rulebook()[code].GOOD
    judgement = judge(unit_of(good))
    assert judgement.findings == ()
    assert judgement.unjudged == ()
    assert fixed(good).text == good


@pytest.mark.parametrize("code", sorted(watched()))
def test_what_only_a_running_job_shows_is_not_read_in_source(code):
    judgement = judge(unit_of(rulebook()[code].BAD))
    assert (judgement.findings, judgement.unjudged) == ((), ())


@pytest.mark.parametrize("code", MENDED)
def test_a_fix_makes_the_bad_one_clean(code):
    bad = RULES[code].BAD
    done = fixed(bad)
    assert [finding.code for finding in done.fixed] == [code]
    assert done.remaining == ()
    assert judge(unit_of(done.text)).findings == ()
    assert fixed(done.text).text == done.text
    assert done.text.count(MARK) <= 1  # comments move with what they stand behind


@pytest.mark.parametrize("code", MENDED)
def test_a_finding_says_what_its_fix_does(code):
    unit = unit_of(RULES[code].BAD)
    [finding] = with_fixes(unit, judge(unit), judge=judge)
    assert finding.fix.title[0].islower()
    assert not finding.fix.title.endswith(".")
    assert apply(unit.text, finding.fix.edits) == fixed(unit.text).text
    assert finding.fix.is_safe == (code != "INS103")


@pytest.mark.parametrize("code", MENDED)
def test_fixes_keep_tabs_and_comments(code):
    """A fix sees the same loop in other clothes."""
    bad = RULES[code].BAD.replace("    ", "\t").replace("\n\t", "\n\t# ähm\n\t", 1)
    done = fixed(bad)
    assert done.remaining == ()
    assert "    " not in done.text
    assert "\t# ähm\n" in done.text
    ast.parse(done.text)


@pytest.mark.parametrize("code", MENDED)
def test_fixes_work_inside_functions_and_methods(code):
    imports, _, body = RULES[code].BAD.partition("\n\n")
    indented = "".join(f"        {line}\n" if line else "\n" for line in body.splitlines())
    text = f"{imports}\n\n\nclass Trainer:\n    def train(self, model, loader):\n{indented}"
    before = [finding.code for finding in judge(unit_of(text)).findings]
    if before == [code]:
        assert fixed(text).remaining == ()


def test_unsafe_fixes_are_those_of_deliberate_looks():
    bad = RULES["INS103"].BAD
    done = fixed(bad, unsafe=False)
    assert done.text == bad
    assert done.remaining[0].fix is not None


def test_most_severe_rules_can_be_mended():
    errors = [code for code, rule in RULES.items() if rule.SEVERITY is Severity.ERROR]
    assert {code for code in errors if code not in MENDED} <= {"INS503", "INS205"}
