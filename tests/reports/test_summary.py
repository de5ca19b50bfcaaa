import re

from instep.reports.summary import render
from instep.rules import Fix, Severity
from tests.reports.kit import plain

SAFE, UNSAFE = Fix("f", ()), Fix("f", (), is_safe=False)


def of(severity, fix=None):
    return plain(severity=severity, fix=fix)


def test_nothing_found():
    assert render([], files=1) == "No problems found in 1 file.\n"
    assert render([], files=0) == "No files to check.\n"
    assert render([], files=12, unjudged=2) == (
        "No problems found in 12 files.\n2 loops were not judged; --verbose says why.\n"
    )


def test_everything_at_once():
    found = [
        of(Severity.INFO),
        of(Severity.ERROR, SAFE),
        of(Severity.WARNING, UNSAFE),
        of(Severity.ERROR, SAFE),
    ]
    assert render(found, files=1200, unjudged=1, fixed=3) == (
        "Fixed 3 problems.\n"
        "Found 2 errors, 1 warning and 1 note in 1 of 1,200 files.\n"
        "2 fixable with --fix, 1 more with --unsafe-fixes.\n"
        "1 loop was not judged; --verbose says why.\n"
    )


def test_one_kind_alone():
    assert render([of(Severity.WARNING)], files=2) == "Found 1 warning in 1 of 2 files.\n"
    assert render([of(Severity.ERROR, UNSAFE)], files=1) == (
        "Found 1 error in 1 file.\n1 fixable with --fix --unsafe-fixes.\n"
    )
    assert render([of(Severity.ERROR, SAFE)], files=1).endswith("\n1 fixable with --fix.\n")


def test_findings_may_come_from_an_iterator():
    assert render(iter([of(Severity.ERROR, SAFE)]), files=1).count("1 fixable") == 1


def test_colours_change_nothing_else():
    found = [of(Severity.ERROR, SAFE), of(Severity.INFO)]
    painted = render(found, files=1, colour=True)
    assert "\x1b[1;31m1 error\x1b[0m" in painted
    assert re.sub(r"\x1b\[[0-9;]*m", "", painted) == render(found, files=1)
