"""The checker over folders of clones, one file after another, with the time each one takes."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from instep.check.judge import Project, judge, wanted
from instep.check.sources import read_units
from instep.rules import Severity
from instep.trace import Place

SUFFIXES = (".py", ".ipynb", ".md")


@dataclass(frozen=True)
class Found:
    """A finding in a clone."""

    repository: str
    file: str
    line: str
    code: str
    severity: str
    message: str


@dataclass(frozen=True)
class Checked:
    """A file, what was found in it, and what it cost."""

    repository: str
    file: str
    lines: int
    seconds: float
    """CPU seconds."""
    crash: str | None
    found: tuple[Found, ...]


def clones(folder: Path) -> Iterator[Path]:
    """Give every clone in a folder; each is named owner+name."""
    return (path for path in sorted(folder.iterdir()) if path.is_dir())


def check_clone(clone: Path) -> Iterator[Checked]:
    """Check every file of a clone that can hold a loop."""
    before = Path.cwd()
    os.chdir(clone)
    try:
        files = sorted(p for suffix in SUFFIXES for p in Path().rglob(f"*{suffix}"))
        project = Project()
        for file in files:
            yield _check(clone.name, str(file), project)
    finally:
        os.chdir(before)


def _check(repository: str, file: str, project: Project) -> Checked:
    start = time.process_time()
    lines, found, crash = 0, [], None
    try:
        units = read_units(file, wanted=wanted)
        for unit in units if isinstance(units, list) else ():
            lines += unit.text.count("\n")
            for finding in judge(unit, project=project).findings:
                if finding.severity >= Severity.WARNING:
                    where, level = _where(finding.place), finding.severity.word
                    found.append(
                        Found(repository, file, where, finding.code, level, finding.message)
                    )
    except Exception as error:  # a crash is what this looks for
        crash = f"{type(error).__name__}: {error}"
    seconds = time.process_time() - start
    return Checked(repository, file, lines, seconds, crash, tuple(found))


def _where(place: Place) -> str:
    return str(place.line) if place.cell is None else f"{place.cell}:{place.line}"
