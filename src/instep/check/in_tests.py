"""Loops in tests: what is found there is a note, and nothing there is mended.

A test does odd things on purpose, and trains nothing that anybody uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.rules.finding import Severity
from instep.trace.pattern import pattern
from instep.trace.plain import replace

if TYPE_CHECKING:
    from instep.rules.finding import Finding

_TEST = pattern(r"test_|Test[A-Z]|[A-Z]\w*Tests?$|\w+TestCase$")
"""Functions and classes of tests, as unittest and pytest find them and people call them."""


def is_in_test(finding: Finding) -> bool:
    """Say whether a finding is about a test, or about what helps one.

    >>> from instep.trace import Place
    >>> from instep.rules.finding import Finding
    >>> where = Place("a.py", 3, function="TestLoops.test_clip")
    >>> is_in_test(Finding("INS101", "missing-zero-grad", Severity.ERROR, where, "m"))
    True
    """
    places = (finding.place, *(related.place for related in finding.related))
    names = {name for place in places for name in (place.function or "").split(".")}
    return any(map(_TEST.match, names))


def milder_in_tests(finding: Finding) -> Finding:
    """Return a finding, and as a note what is found in a test."""
    if finding.severity > Severity.INFO and is_in_test(finding):
        return replace(finding, severity=Severity.INFO)
    return finding
