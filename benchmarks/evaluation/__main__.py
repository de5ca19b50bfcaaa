"""The command line of the evaluation."""

import argparse
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from benchmarks.evaluation.running import Checked, check_clone, clones
from benchmarks.evaluation.verdicts import (
    Repository,
    Verdict,
    by_cause,
    load_repositories,
    load_verdicts,
    precision,
)
from benchmarks.report import table, write_section
from instep.rules.registry import names

PAGE = Path(__file__).parents[2] / "docs" / "evaluation.md"
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
    sections = page_sections(load_repositories(), load_verdicts())
    for name, body in sections.items():
        if options.write:
            write_section(name, body, PAGE)
        else:
            print(f"## {name}\n\n{body}\n")


def page_sections(repositories: list[Repository], verdicts: list[Verdict]) -> dict[str, str]:
    """Return the sections of the page by their names."""
    return {
        "sets": _sets(repositories, verdicts),
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
                _short(v for v in own if v.now == "error"),
                _short(v for v in own if v.now == "warning"),
            ]
        )
    header = [
        "set", "repositories", "files with loops", "lines of Python", "errors",
        "errors, once per repository and rule", "warnings", "warnings, likewise",
        "errors that are left", "warnings that are left",
    ]  # fmt: skip
    return table(header, rows)


def _short(verdicts: Iterable[Verdict]) -> str:
    found = precision(verdicts)
    return f"{found.right} of {found.total}"


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
