import math
from dataclasses import replace

import pytest

from benchmarks.evaluation.__main__ import PAGE, README, page_sections, summary
from benchmarks.evaluation.running import check_clone, clones
from benchmarks.evaluation.verdicts import (
    Precision,
    Repository,
    Verdict,
    by_cause,
    by_the_loop,
    load_repositories,
    load_verdicts,
    precision,
)
from instep.rules.registry import names


def verdict(said="true", code="INS101", repository="a+b", severity="error"):
    return Verdict(
        "one", repository, "train.py", "12", code, severity, said, severity, "", "because"
    )


@pytest.mark.parametrize(
    ("right", "total", "bound"), [(16, 16, 0.829), (0, 5, 0.0), (9, 10, 0.606), (1, 1, 0.05)]
)
def test_the_bound_is_that_of_clopper_and_pearson(right, total, bound):
    assert Precision(right, total).bound == pytest.approx(bound, abs=1e-3)


def test_nothing_found_says_nothing():
    assert math.isnan(Precision(0, 0).share)
    assert str(Precision(0, 0)) == "none"


def test_what_is_unclear_is_not_right():
    assert precision([verdict(), verdict("unclear"), verdict("false")]) == Precision(1, 3)


def test_copies_of_one_loop_count_once():
    copies = [verdict()] * 5
    assert by_cause(copies) == Precision(1, 1)
    assert by_cause([*copies, verdict("false")]) == Precision(0, 1)
    assert by_cause([*copies, verdict("false", code="INS102")]) == Precision(1, 2)


def test_the_sections_hold_every_finding_and_repository():
    repositories = [Repository("one", "a+b", "0123456789abcdef", 3, 1000)]
    sections = page_sections(repositories, [verdict(), verdict("false", severity="warning")])
    assert "| one | 1 | 3 | 1,000 | 1 of 1 (100%, above 5%)" in sections["sets"]
    assert sections["findings"].count("train.py") == 2
    assert "a/b" in sections["repositories"]
    assert "INS101 missing-zero-grad" in sections["rules"]


def test_clones_are_checked(tmp_path):
    clone = tmp_path / "owner+name"
    clone.mkdir()
    (clone / "train.py").write_text(
        "import torch\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for x, y in loader:\n"
        "    loss = torch.nn.functional.cross_entropy(model(x), y)\n"
        "    loss.backward()\n"
        "    optimizer.step()\n"
    )
    [path] = clones(tmp_path)
    [checked] = check_clone(path)
    assert checked.crash is None
    assert [(found.line, found.code) for found in checked.found] == [("5", "INS101")]


def test_the_data_fit_together():
    repositories = {(r.set, r.name) for r in load_repositories()}
    for one in load_verdicts():
        assert (one.set, one.repository) in repositories
        assert one.code in names()
        assert one.severity in {"error", "warning"}
        assert one.verdict in {"true", "false", "unclear"}
        assert one.now in {"error", "warning", "silent"}
        assert one.loop in {"", "holds", "fails", "unclear"}
        assert one.reason
        if one.loop:
            assert one.loop == "holds" or not one.is_right


def test_what_is_right_of_the_loop_is_counted_apart():
    stops = replace(verdict("false"), loop="holds")
    fails = replace(verdict("false", repository="c+d"), loop="fails")
    assert precision([stops, fails]) == Precision(0, 2)
    assert precision([stops, fails], by_the_loop) == Precision(1, 2)
    assert by_cause([stops, stops, fails], by_the_loop) == Precision(1, 2)
    repositories = [Repository("one", name, "0" * 40, 3, 1) for name in ("a+b", "c+d")]
    sections = page_sections(repositories, [stops, fails, verdict()])
    assert "| one | 1 of 2 (50%, above 3%) |" in sections["loops"]  # of what was asked
    assert "| together | 1 of 2 (50%, above 3%) |" in sections["loops"]


def test_the_summary_is_of_the_sets_of_which_it_was_asked():
    repositories = [Repository(name, "a+b", "0123456789abcdef", 3, 1000) for name in "abc"]
    verdicts = [
        replace(verdict(said, severity=severity), set=name, loop=loop if name != "a" else "")
        for name in "abc"
        for severity in ("error", "warning")
        for said, loop in (("true", "holds"), ("false", "holds"), ("false", "fails"))[
            : 3 if name == "c" else 2
        ]
    ]
    text = " ".join(summary(repositories, verdicts).split())
    assert "in 3 public repositories" in text
    assert "On the last 1 of them" in text
    assert "right in 2 of 3 errors (67%, above 14%) and 2 of 3 warnings" in text
    assert "on the last 2 sets, 2 repositories, in 4 of 5 errors (80%, above 34%)" in text
    assert "On the last set 1 of 3 errors and 1 of 3 warnings are in programs" in text
    assert "one kind of error in 2, and one kind of warning in 2," in text


def test_the_pages_say_what_the_data_say():
    repositories, verdicts = load_repositories(), load_verdicts()
    page = PAGE.read_text(encoding="utf-8")
    for name, body in page_sections(repositories, verdicts).items():
        assert body in page, name
    assert summary(repositories, verdicts) in README.read_text(encoding="utf-8")


def test_right_findings_that_are_lost_are_counted():
    lost = replace(verdict(), now="silent")
    left = page_sections([Repository("one", "a+b", "0" * 40, 3, 1)], [lost, verdict()])["left"]
    assert "| one | 1 of 1 | 0 of 0 | 1 |" in left
