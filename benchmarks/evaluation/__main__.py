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
    by_the_loop,
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
_NOUNS = ("errors", "warnings")
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
        "loops": _loops(verdicts),
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


def _loops(verdicts: list[Verdict]) -> str:
    """Return how many findings are right of the loop, by the sets of which that was asked."""
    asked = [verdict for verdict in verdicts if verdict.loop]
    sets: dict[str, list[Verdict]] = {}
    for verdict in asked:
        sets.setdefault(verdict.set, []).append(verdict)
    rows = []
    for name, own in [*sets.items(), ("together", asked)]:
        row = [name]
        for severity in _SEVERITIES:
            found = [verdict for verdict in own if verdict.severity == severity]
            row += [str(count(found, by_the_loop)) for count in (precision, by_cause)]
        rows.append(row)
    header = [
        "set", "errors", "errors, once per repository and rule", "warnings", "warnings, likewise",
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
    """Return what the README says: of the newest set, and of all those together of which it was
    asked what is right of the loop.
    """
    asked = [verdict for verdict in verdicts if verdict.loop]
    sets = list(dict.fromkeys(verdict.set for verdict in asked))
    newest = [verdict for verdict in asked if verdict.set == sets[-1]]
    sizes = Counter(repository.set for repository in repositories)
    found, last = (
        [[verdict for verdict in of if verdict.severity == severity] for severity in _SEVERITIES]
        for of in (asked, newest)
    )
    now = [
        _bounded(precision(own, by_the_loop), noun) for own, noun in zip(last, _NOUNS, strict=True)
    ]
    all_ = [
        _bounded(precision(own, by_the_loop), noun) for own, noun in zip(found, _NOUNS, strict=True)
    ]
    stands = [_short(own) for own in last]
    scaling = _short(v for v in verdicts if v.code.startswith("INS3") and v.severity == "error")
    return (
        f"Every error and warning in {len(repositories):,} public repositories and packages, but "
        "for copies, was read by hand\n([docs/evaluation.md](docs/evaluation.md) lists them all). "
        f"On the last {sizes[sets[-1]]} of them, which it had never met, what it said of a loop "
        f"was right in\n{now[0]} and\n{now[1]}; on the last {len(sets)} sets,\n"
        f"{sum(sizes[name] for name in sets):,} repositories, in {all_[0]} and\n{all_[1]}. "
        "The bounds hold with 95 % confidence. Right means that the line does what is said of it "
        "whenever it runs. On the last set\n"
        f"{stands[0]} errors and {stands[1]} warnings are in programs that also get there as "
        "they stand, with today's libraries; the others stop before, for another reason. Most of "
        "what was wrong has been\nrepaired since, and those files cannot measure that any more: "
        f"expect about\none kind of error in {_wrong(found[0])}, and one kind of warning in "
        f"{_wrong(found[1])}, to be mistaken. What it says about clipping and loss scaling was\n"
        f"right in {scaling} errors over all. One file of all these made it run out of memory, and "
        "no longer does."
    )


def _wrong(found: list[Verdict]) -> int:
    """Return among how many causes one is wrong: copies are no evidence."""
    both = by_cause(found, by_the_loop)
    return round(both.total / max(1, both.total - both.right))


def _short(verdicts: Iterable[Verdict]) -> str:
    found = precision(verdicts)
    return f"{found.right} of {found.total}"


def _bounded(found: Precision, noun: str) -> str:
    return f"{found.right} of {found.total} {noun} ({found.share:.0%}, above {found.bound:.0%})"


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
            verdict.loop,
            verdict.reason,
        ]
        for verdict in verdicts
    ]
    header = [
        "set", "repository", "commit", "file", "line", "rule", "severity", "verdict", "now",
        "by the loop", "reason",
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
