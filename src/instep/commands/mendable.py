"""Which findings of a running job `instep check --fix` mends: asked of the checker itself."""

from __future__ import annotations

import os
import shlex
import sys
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from instep.check.options import Settings, configure
from instep.check.progress import Progress
from instep.check.run import Run, check, settle
from instep.reports.escape import visible
from instep.rules.registry import names, rule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from instep.check.run import Checked
    from instep.rules import Finding

    Line = tuple[str, str, int]

_MOST_FILES = 16


class Mendable(NamedTuple):
    """How many findings are mended, and what to type for it."""

    number: int
    command: str


def mendable(findings: Iterable[Finding], script: str | None, folder: str) -> Mendable | None:
    """Read the files that findings are in; None: the checker mends nothing of what they say.

    The script is read as well, since a mistake in a helper may only show where it is called. Paths
    are those that somebody in `folder` would type. Nothing is written.
    """
    wanted = {_line(finding, folder) for finding in findings if _has_fixes(finding.code)}
    paths = _paths(findings, script, folder)
    if not wanted or not paths:
        return None
    # `--fix` as it is typed without any option more: by the settings of the project alone.
    settings = Settings(configure(paths, names()), names())
    offered = _checked(Run(settings, paths))
    lines = {
        _line(finding, folder)
        for outcome in offered.outcomes
        for finding in outcome.findings
        if finding.fix is not None and finding.fix.is_safe
    }
    if wanted.isdisjoint(lines):
        return None
    # Lines move while fixes are made, so they are counted: of two, one may leave the other out.
    fixing = _checked(Run(Settings(settings.config, settings.rules, fixes=True), paths))
    made = Counter(
        _line(finding, folder)[:2] for outcome in fixing.outcomes for finding in outcome.fixed
    )
    said = Counter(line[:2] for line in wanted & lines)
    count = sum(min(number, made[each]) for each, number in said.items())
    typed = " ".join(shlex.quote(visible(path)) for path in _typed(paths, folder))
    return Mendable(count, f"instep check --fix {typed}") if count else None


def _checked(run: Run) -> Checked:
    with Progress(sys.stderr, is_on=False) as progress:
        return settle(run, check(run, progress))


def _has_fixes(code: str) -> bool:
    return hasattr(rule(code), "mend")


def _line(finding: Finding, folder: str) -> Line:
    return (_absolute(finding.place.path, folder), finding.code, finding.place.line)


def _absolute(path: str, folder: str) -> str:
    return os.path.abspath(os.path.join(folder, path))  # noqa: PTH100, PTH118  # no links followed


def _paths(findings: Iterable[Finding], script: str | None, folder: str) -> list[str]:
    """Return the files to read, as absolute paths: the script, and others of the user's own."""
    home = folder if script is None else os.path.dirname(_absolute(script, folder))  # noqa: PTH120
    found = [] if script is None else [_absolute(script, folder)]
    for finding in findings:
        path = _absolute(finding.place.path, folder)
        # What is installed is nobody's to mend.
        is_own = path.startswith((os.path.join(folder, ""), os.path.join(home, "")))  # noqa: PTH118
        if is_own and f"{os.sep}site-packages{os.sep}" not in path:
            found.append(path)
    there = [path for path in dict.fromkeys(found) if path.endswith(".py") and os.path.isfile(path)]  # noqa: PTH113
    return there if len(there) <= _MOST_FILES else []


def _typed(paths: list[str], folder: str) -> list[str]:
    return [path.removeprefix(os.path.join(folder, "")) for path in paths]  # noqa: PTH118
