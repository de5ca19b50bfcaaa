"""The command line of the evaluation."""

import argparse
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from benchmarks.evaluation.running import Checked, check_clone, clones
from benchmarks.evaluation.verdicts import (
    Precision,
    Repository,
    Verdict,
    by_cause,
    load_repositories,
    load_verdicts,
    precision,
)
from benchmarks.report import table, write_section
from instep.rules.registry import names

HOME = Path(__file__).parents[2]
PAGE = HOME / "docs" / "evaluation.md"
README = HOME / "README.md"
_SEVERITIES = ("error", "warning")
LIMIT = 2.0
"""Seconds that no file should take."""


def main() -> None:
    """Recompute the page, or check clones."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evaluation", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write docs/evaluation.md")
    parser.add_argument("--run", type=Path, metavar="FOLDER", help="check the clones in a folder")
    options = parser.parse_args()
    if options.run is not None:
        _run(options.run)
        return
    repositories, verdicts = load_repositories(), load_verdicts()
    sections = [(PAGE, *section) for section in page_sections(repositories, verdicts).items()]
    sections.append((README, "check-numbers", summary(repositories, verdicts)))
    for page, name, body in sections:
        if options.write:
            write_section(name, body, page)
        else:
            print(f"## {name}\n\n{body}\n")


def page_sections(repositories: list[Repository], verdicts: list[Verdict]) -> dict[str, str]:
    """Return the sections of the page by their names."""
    return {
        "sets": _sets(repositories, verdicts),
        "left": _left(verdicts),
        "rules": _rules(verdicts),
        "findings": _findings(repositories, verdicts),
        "repositories": _repositories(repositories),
    }


def _sets(repositories: list[Repository], verdicts: list[Verdict]) -> str:
    rows = []
    for name in dict.fromkeys(repository.set for repository in repositories):
        members = [repository for repository in repositories if repository.set == name]
        own = [verdict for verdict in verdicts if verdict.set == name]
        errors = [verdict for verdict in own if verdict.severity == "error"]
        warnings = [verdict for verdict in own if verdict.severity == "warning"]
        rows.append(
            [
                name,
                str(len(members)),
                f"{sum(member.loop_files for member in members):,}",
                f"{sum(member.lines for member in members):,}",
                str(precision(errors)),
                str(by_cause(errors)),
                str(precision(warnings)),
                str(by_cause(warnings)),
            ]
        )
    header = [
        "set", "repositories", "files with loops", "lines of Python", "errors",
        "errors, once per repository and rule", "warnings", "warnings, likewise",
    ]  # fmt: skip
    return table(header, rows)


def _left(verdicts: list[Verdict]) -> str:
    """Return what the checker still says of what was read, and how much of it was right."""
    rows = []
    for name in dict.fromkeys(verdict.set for verdict in verdicts):
        own = [verdict for verdict in verdicts if verdict.set == name]
        lost = sum(v.is_right and v.now == "silent" for v in own)
        errors, warnings = (_short(v for v in own if v.now == now) for now in ("error", "warning"))
        rows.append([name, errors, warnings, str(lost)])
    header = ["set", "errors that are left", "warnings that are left", "right ones that are silent"]
    return table(header, rows)


def summary(repositories: list[Repository], verdicts: list[Verdict]) -> str:
    """Return what the README says: the newest set that has errors and warnings, the two before it,
    those among the last that are too small for that, and what to expect.
    """
    sets = _measuring(verdicts)
    errors, warnings = (
        [[v for v in verdicts if (v.set, v.severity) == (name, of)] for name in sets]
        for of in _SEVERITIES
    )
    size = sum(repository.set == sets[-1] for repository in repositories)
    small = _small(repositories, verdicts, sets)
    few = [v for v in verdicts if v.set in small]
    scaling = _short(v for v in verdicts if v.code.startswith("INS3") and v.severity == "error")
    once = [by_cause(found[-1]) for found in (errors, warnings)]
    return (
        f"Every error and warning in {len(repositories):,} public repositories and packages, but "
        "for copies, was read by hand\n([docs/evaluation.md](docs/evaluation.md) lists them all). "
        "On the last "
        f"{size} of them that are enough to tell, which it had never met, it was right in\n"
        f"{_bounded(precision(errors[-1]), 'errors')} "
        f"and {_bounded(precision(warnings[-1]), 'warnings')}, where the bounds hold with 95 % "
        "confidence;\ncounted once per repository and rule, in "
        f"{once[0].right} of {once[0].total} and {once[1].right} of {once[1].total}. On the two "
        f"sets before, in {_before(errors)} errors\nand in {_before(warnings)} warnings. "
        f"{_few(small, few)}The thirteenth to the\nfifteenth set were read more strictly: "
        "a line had to run by what is in its repository, or it did not count. Most of "
        "what was wrong has been\nrepaired since, and those files cannot measure that any more: "
        f"expect about\none kind of error in {_wrong(errors, few, 'error')}, and one kind of "
        f"warning in {_wrong(warnings, few, 'warning')}, to be mistaken. What it says about "
        "clipping and loss scaling was\n"
        f"right in {scaling} errors over all. One file of all these made it run out of memory, and "
        "no longer does."
    )


def _short(verdicts: Iterable[Verdict]) -> str:
    found = precision(verdicts)
    return f"{found.right} of {found.total}"


def _bounded(found: Precision, noun: str) -> str:
    return f"{found.right} of {found.total} {noun} ({found.share:.0%}, above {found.bound:.0%})"


def _before(found: list[list[Verdict]]) -> str:
    return " and ".join(map(_short, found[-3:-1]))


def _measuring(verdicts: list[Verdict]) -> list[str]:
    """Return the sets that have errors and warnings, in their order."""
    said = {(verdict.set, verdict.severity) for verdict in verdicts}
    sets = dict.fromkeys(verdict.set for verdict in verdicts)
    return [name for name in sets if {(name, "error"), (name, "warning")} <= said]


def _small(
    repositories: list[Repository], verdicts: list[Verdict], measuring: list[str]
) -> dict[str, int]:
    """Return the sets beside the last two that measure, and how many repositories each has."""
    sizes = Counter(repository.set for repository in repositories)
    sets = list(dict.fromkeys(verdict.set for verdict in verdicts))
    late = sets[sets.index(measuring[-2:][0]) :]
    return {name: sizes[name] for name in late if name not in measuring}


def _few(small: dict[str, int], verdicts: list[Verdict]) -> str:
    if not small:
        return ""
    said = [
        f"{_short(own)} {of}s were right" if own else f"there is no {of}"
        for of in _SEVERITIES
        for own in [[verdict for verdict in verdicts if verdict.severity == of]]
    ]
    size = sum(small.values())
    return f"On {size} others of the last repositories, too few to tell, {', and '.join(said)}.\n"


def _wrong(found: list[list[Verdict]], few: list[Verdict], severity: str) -> int:
    """Return among how many causes of the last two sets, and of smaller ones beside them, one
    is wrong: copies are no evidence.
    """
    last = [verdict for own in found[-2:] for verdict in own]
    both = by_cause([*last, *(verdict for verdict in few if verdict.severity == severity)])
    return round(both.total / max(1, both.total - both.right))


def _rules(verdicts: list[Verdict]) -> str:
    known = names()
    sets = list(dict.fromkeys(verdict.set for verdict in verdicts))
    codes = sorted({(verdict.code, verdict.severity) for verdict in verdicts})
    rows = []
    for code, severity in codes:
        cells = [f"{code} {known.get(code, '')}".strip(), severity]
        for name in sets:
            own = [
                verdict
                for verdict in verdicts
                if (verdict.set, verdict.code, verdict.severity) == (name, code, severity)
            ]
            cells.append(str(precision(own)))
        rows.append(cells)
    return table(["rule", "severity", *sets], rows)


def _findings(repositories: list[Repository], verdicts: list[Verdict]) -> str:
    commits = {(r.set, r.name): r.commit for r in repositories}
    rows = [
        [
            verdict.set,
            verdict.repository.replace("+", "/", 1),
            commits[verdict.set, verdict.repository][:10],
            f"`{verdict.file}`",
            verdict.line,
            verdict.code,
            verdict.severity,
            verdict.verdict,
            verdict.now,
            verdict.reason,
        ]
        for verdict in verdicts
    ]
    header = [
        "set", "repository", "commit", "file", "line", "rule", "severity", "verdict", "now",
        "reason",
    ]  # fmt: skip
    return table(header, rows)


def _repositories(repositories: list[Repository]) -> str:
    rows = [
        [r.set, r.name.replace("+", "/", 1), r.commit[:10], str(r.loop_files), f"{r.lines:,}"]
        for r in repositories
    ]
    return table(["set", "repository", "commit", "files with loops", "lines"], rows)


def _run(folder: Path) -> None:
    known = Counter((v.repository, v.file, v.line, v.code) for v in load_verdicts())
    checked: list[Checked] = []
    for clone in clones(folder):
        for one in check_clone(clone):
            checked.append(one)
            for found in one.found:
                key = (found.repository, found.file, found.line, found.code)
                mark = " " if known[key] else "?"
                where = f"{found.repository}\t{found.file}\t{found.line}"
                print(f"{mark}\t{where}\t{found.code}\t{found.severity}\t{found.message}")
    lines = sum(one.lines for one in checked)
    seconds = sum(one.seconds for one in checked)
    print(
        f"{len(checked):,} files, {lines:,} lines judged, {lines / max(seconds, 1e-9):,.0f} lines/s"
    )
    for one in checked:
        if one.crash is not None or one.seconds > LIMIT:
            print(f"! {one.repository} {one.file}: {one.crash or f'{one.seconds:.1f} s'}")


if __name__ == "__main__":
    main()
