"""Rules that only a running job shows: the wrong example is found, the right one is not."""

import pytest

from instep.rules.registry import rulebook, watched
from tests.watching.jobs import found, hooks, run

ALONE = sorted(watched() - {"INS606"})  # that one needs several processes: test_ranks.py


@pytest.mark.parametrize("code", ALONE)
def test_bad_is_found_where_it_is_marked(code):
    bad = rulebook()[code].BAD
    [line] = [n for n, text in enumerate(bad.splitlines(), 1) if text.endswith("# <- here")]
    job = run(bad)
    assert found(job) == [(code, line)]
    assert [finding.severity for finding in job.findings] == [rulebook()[code].SEVERITY]


@pytest.mark.parametrize("code", ALONE)
def test_good_is_not(code):
    assert found(run(rulebook()[code].GOOD)) == []


@pytest.mark.parametrize("code", ALONE)
@pytest.mark.parametrize("kind", ["BAD", "GOOD"])
def test_the_numbers_are_those_of_the_job_alone(code, kind):
    source = getattr(rulebook()[code], kind)
    models = [
        [job.left[name] for name in ("model", "encoder", "head") if name in job.left]
        for job in (run(source), run(source, watched=False))
    ]
    for one, other in zip(*models, strict=True):
        assert hooks(one) == 0
        for mine, theirs in zip(one.parameters(), other.parameters(), strict=True):
            assert mine.equal(theirs) or (mine.isnan().equal(theirs.isnan()) and mine.isnan().any())
