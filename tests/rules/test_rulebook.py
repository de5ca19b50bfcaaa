"""What every rule must bring along, and the names that are fixed."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from instep.check.execute.entries import Runner
from instep.check.execute.program import Project
from instep.check.sources import units_from_bytes
from instep.rules import Severity, registry
from instep.rules.registry import names, needs, rulebook, watched
from instep.rules.view import View
from instep.trace import Trace

TABLE = {
    "INS101": "missing-zero-grad", "INS102": "cleared-before-step", "INS103": "step-per-patch",
    "INS104": "step-without-backward", "INS105": "wrong-optimizer-cleared",
    "INS106": "cleared-twice", "INS201": "unscaled-accumulation", "INS202": "leftover-window",
    "INS203": "mean-of-means", "INS204": "off-by-one-window", "INS205": "double-normalisation",
    "INS206": "batchnorm-in-window", "INS207": "coupled-loss-split",
    "INS301": "clip-inside-window", "INS302": "clip-after-step", "INS303": "clip-before-unscale",
    "INS304": "scaler-without-update", "INS305": "scaler-bypassed",
    "INS306": "unscaled-backward", "INS307": "double-unscale", "INS308": "deprecated-cuda-amp",
    "INS309": "low-precision-accumulation",
    "INS401": "scheduler-before-step", "INS402": "scheduler-per-micro-batch",
    "INS501": "grad-may-be-none", "INS502": "parameters-not-in-optimizer",
    "INS503": "replaced-parameters", "INS504": "parameter-without-gradient",
    "INS505": "nonfinite-step", "INS506": "vanishing-or-exploding-update",
    "INS601": "loss-graph-kept", "INS602": "zero-fill", "INS603": "sync-every-micro-batch",
    "INS604": "train-mode-lost", "INS605": "memory-growth", "INS606": "ranks-disagree",
}  # fmt: skip
RULES = list(rulebook().values())
MARK = "# <- here"


def test_codes_and_names_are_those_of_the_table():
    assert names() == TABLE
    assert list(names()) == sorted(names())
    assert names() == {code: rule.NAME for code, rule in rulebook().items()}


def test_what_only_a_running_job_shows_is_known():
    assert watched() == {"INS309", "INS504", "INS505", "INS506", "INS605", "INS606"}
    seen = {code: rule.SEEN for code, rule in rulebook().items() if hasattr(rule, "SEEN")}
    assert seen == {**dict.fromkeys(watched(), "watch"), "INS601": "check"}
    assert not any(hasattr(rulebook()[code], "mend") for code in watched())


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.NAME)
class TestEveryRule:
    def test_lies_in_the_file_of_its_name(self, rule):
        assert rule.__name__ == f"instep.rules.{rule.NAME.replace('-', '_')}"

    def test_has_a_page(self, rule):
        title, blank, *page = rule.__doc__.strip().splitlines()
        assert title == f"{rule.CODE} {rule.NAME}"
        assert blank == ""
        assert 8 <= len(page) <= 40

    def test_has_a_summary_of_one_sentence(self, rule):
        assert rule.SUMMARY.endswith(".")
        assert "\n" not in rule.SUMMARY
        assert rule.SUMMARY[0].isupper() or rule.SUMMARY[0] == "`"

    def test_has_a_severity(self, rule):
        assert isinstance(rule.SEVERITY, Severity)
        text = Path(rule.__file__).read_text(encoding="utf-8")
        used = [Severity[name] for name in re.findall(r"Severity\.([A-Z]+)", text)]
        assert getattr(rule, "MILDEST", rule.SEVERITY) is min(used)
        assert rule.SEVERITY is max(used)

    def test_has_examples_that_parse(self, rule):
        ast.parse(rule.BAD)
        ast.parse(rule.GOOD)
        assert rule.BAD.endswith("\n")
        assert rule.GOOD.endswith("\n")
        assert rule.BAD != rule.GOOD

    def test_marks_one_line_to_change(self, rule):
        marked = [line for line in rule.BAD.splitlines() if line.endswith(MARK)]
        assert len(marked) == 1
        assert marked[0].split("#")[0].strip()
        assert MARK not in rule.GOOD

    def test_finds_nothing_in_nothing(self, rule):
        assert list(rule.judge(View(Trace()))) == []


@pytest.mark.parametrize("part", ["CODE", "NAME", "SUMMARY", "BAD", "__doc__"])
def test_no_two_rules_are_alike(part):
    assert len({getattr(rule, part) for rule in RULES}) == len(RULES)


def traces_of_all_examples():
    """Every path of every rule's own examples."""
    found = []
    for rule in RULES:
        for text in (rule.BAD, rule.GOOD):
            [unit] = units_from_bytes(text.encode(), "train.py")
            project = Project()
            module = project.adopt(unit, "train.py")
            found += [path.trace for path in Runner(module, project).all().paths]
    return found


def test_what_is_read_of_a_rule_is_what_it_says():
    """Settings and the judge go by the text of a rule before it is loaded."""
    kinds = {code: tuple(kind.__name__ for kind in getattr(each, "NEEDS", ()))
             for code, each in rulebook().items()}  # fmt: skip
    assert needs() == kinds
    assert sum(not each for each in kinds.values()) < 5
    assert all(registry.rule(code) is each for code, each in rulebook().items())
    assert registry.rule("INS999") is None


def test_a_rule_is_loaded_when_a_trace_has_what_it_needs():
    code = (
        "import sys; from instep.rules.verdict import judge_all; "
        "from instep.rules.view import View; from instep.trace import Step, Trace, Zero; "
        "judge_all(View(Trace([Step('sgd'), Zero(('sgd',))]))); "
        "assert 'instep.rules.cleared_twice' in sys.modules; "
        "assert 'instep.rules.clip_after_step' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_what_a_rule_needs_it_finds_nothing():
    traces = traces_of_all_examples()
    asked = [rule for rule in RULES if hasattr(rule, "NEEDS")]
    assert len(asked) > 20
    found = 0
    for rule in asked:
        for trace in traces:
            found += len(list(rule.judge(View(trace))))
            for kind in rule.NEEDS:
                less = View(Trace(event for event in trace if not isinstance(event, kind)))
                assert list(rule.judge(less)) == [], (rule.NAME, kind)
    assert found > 20
