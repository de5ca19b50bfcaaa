"""A judge that any line can be judged with, so that a run is tested without the executor."""

import re
from types import SimpleNamespace

from instep.check.tools import Tools
from instep.rules import Edit, Finding, Fix, Related, Severity

CODE, NAME = "INS302", "clip-after-step"
OTHER, OTHER_NAME = "INS303", "clip-before-unscale"
KINDS = {"bad": (CODE, NAME, Severity.ERROR), "odd": (OTHER, OTHER_NAME, Severity.WARNING)}
judged = []
"""Paths of the units that were judged, in order."""
followed = set()
elsewhere = {}
"""By the path of a unit: findings in other files."""


def judge(unit):
    judged.append(unit.path)
    if "explode" in unit.text:
        raise RuntimeError("boom\nand more")
    if "deep" in unit.text:
        raise RecursionError
    findings, unjudged = [], []
    for number, line in enumerate(unit.text.split("\n"), start=1):
        for match in re.finditer(r"\b(bad|odd)\b", line):
            code, name, severity = KINDS[match[1]]
            column = len(line[: match.start()].encode())
            place = unit.locator.place(number, column, number, column + 3)
            related = (Related(unit.locator.place(1, 0), "loop here"),)
            findings.append(Finding(code, name, severity, place, "it is bad.", related))
        if "unknown" in line:
            unjudged.append(SimpleNamespace(place=unit.locator.place(number), reason="who knows"))
    return SimpleNamespace(
        findings=tuple(findings),
        elsewhere=tuple(elsewhere.get(unit.path, ())),
        unjudged=unjudged,
        loops=unit.text.count("for "),
        again=(),
        followed=followed,
    )


def edit(unit, finding):
    line = unit.locator.text_line(finding.place)
    shift = unit.locator.spots[line - 1].shift if unit.locator.spots else 0
    column = finding.place.column - shift
    return Edit(line, column, line, column + 3, "good")


def with_fixes(unit, judgement, findings, again):
    found = []
    for finding in findings:
        is_safe = finding.code == CODE
        fix = Fix("make it good", (edit(unit, finding),), is_safe=is_safe)
        found.append(Finding(**{f: getattr(finding, f) for f in finding.__slots__} | {"fix": fix}))
    return tuple(found)


def mend(unit, unsafe, again, accept):
    from instep.check.translate import applied

    taken = [f for f in accept(unit, again(unit).findings) if unsafe or f.code == CODE]
    text = applied(unit.text, [edit(unit, finding) for finding in taken])
    return SimpleNamespace(text=text, fixed=tuple(taken))


def load():
    return Tools(("backward",), judge, with_fixes, mend)
