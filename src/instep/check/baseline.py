"""A baseline: findings that a code base lives with, so that only new ones are reported.

An entry is a rule, a file, the text of the line and which one of several it is; line numbers are
not part of it, so that unrelated edits leave it valid.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from instep.errors import CheckError
from instep.trace.plain import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from instep.rules.finding import Finding
    from instep.trace import Place

    LineOf = Callable[[Place], str]

_VERSION = 1


class Fingerprint(NamedTuple):
    """What makes a finding the same one tomorrow."""

    path: str
    """Relative to the baseline's folder, with forward slashes."""
    code: str
    text: str
    """The line, with every run of white space one space."""
    occurrence: int
    """0 for the first finding of this rule on such a line of this file, 1 for the next."""


class Filtered(NamedTuple):
    """Findings held against a baseline."""

    new: tuple[Finding, ...]
    known: tuple[Finding, ...]
    stale: tuple[Fingerprint, ...]
    """Entries that nothing matches any more: mended, or moved."""


@dataclass(frozen=True)
class Baseline:
    """The entries of a baseline file, and the folder that their paths are relative to."""

    root: Path
    entries: frozenset[Fingerprint] = frozenset()

    def filter(
        self,
        findings: Sequence[Finding],
        line_of: LineOf,
        *,
        checked: Collection[str] | None = None,
    ) -> Filtered:
        """Part the new findings from the known ones.

        `checked` are the paths that were looked at, as shown to the user: an entry of another file
        is not stale. None: all files were.
        """
        marks = fingerprints(findings, line_of, self.root)
        new = tuple(f for f, mark in zip(findings, marks, strict=True) if mark not in self.entries)
        known = tuple(f for f, mark in zip(findings, marks, strict=True) if mark in self.entries)
        left = self.entries - set(marks)
        if checked is not None:
            seen = {_relative(path, self.root) for path in checked}
            left = frozenset(entry for entry in left if entry.path in seen)
        return Filtered(new, known, tuple(sorted(left)))


def fingerprints(
    findings: Sequence[Finding], line_of: LineOf, root: str | Path
) -> list[Fingerprint]:
    """Return the fingerprint of each finding; `line_of` gives the source line of a place."""
    order = sorted(range(len(findings)), key=lambda at: _position(findings[at].place))
    seen: Counter[tuple[str, str, str]] = Counter()
    found: dict[int, Fingerprint] = {}
    for at in order:
        finding = findings[at]
        path = _relative(finding.place.path, Path(root))
        key = (path, finding.code, normalised(line_of(finding.place)))
        found[at] = Fingerprint(*key, seen[key])
        seen[key] += 1
    return [found[at] for at in range(len(findings))]


def normalised(line: str) -> str:
    """Return a line without what a formatter changes.

    >>> normalised("    optimizer.step()   # update ")
    'optimizer.step() # update'
    """
    return " ".join(line.split())


def write_baseline(file: str | Path, findings: Sequence[Finding], line_of: LineOf) -> Baseline:
    """Write the baseline that knows exactly these findings, and return it."""
    path = Path(_absolute(file))
    entries = fingerprints(findings, line_of, path.parent)
    content = {"version": _VERSION, "findings": [mark._asdict() for mark in sorted(entries)]}
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    beside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        # A run that is cut off must not leave half a baseline, which would hide nothing.
        with beside.open("x", encoding="utf-8") as new:  # "x" follows no link that waits there
            new.write(text)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise _error(
            f"{file}: it cannot be written ({error.strerror}).", "check the path."
        ) from error
    return Baseline(path.parent, frozenset(entries))


def read_baseline(file: str | Path) -> Baseline:
    """Read a baseline."""
    path = Path(_absolute(file))
    if path.exists() and not path.is_file():  # a device would never end
        raise _error(f"{file}: it is no file.", "correct the path.")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        fix = "write one with --write-baseline, or correct the path."
        raise _error(f"{file}: it cannot be read ({error.strerror}).", fix) from error
    except (ValueError, RecursionError) as error:
        raise _error(f"{file}: it is not JSON ({error}).", _AGAIN) from error
    if not isinstance(content, dict) or content.get("version") != _VERSION:
        raise _error(f"{file}: it is not a baseline of version {_VERSION}.", _AGAIN)
    return Baseline(path.parent, frozenset(_entries(str(file), content.get("findings"))))


_AGAIN = "write it again with --write-baseline."


def _entries(file: str, found: Any) -> Iterable[Fingerprint]:
    kinds = {"path": str, "code": str, "text": str, "occurrence": int}
    if not isinstance(found, list):
        raise _error(f"{file}: its findings are no list.", _AGAIN)
    for at, entry in enumerate(found):
        if not isinstance(entry, dict) or not all(
            isinstance(entry.get(key), kind) for key, kind in kinds.items()
        ):
            raise _error(f"{file}: entry {at} is not a finding.", _AGAIN)
        yield Fingerprint(*(entry[key] for key in kinds))


def _relative(path: str, root: Path) -> str:
    absolute = _absolute(path)
    try:
        return os.path.relpath(absolute, root).replace(os.sep, "/")
    except ValueError:  # another drive
        return absolute.replace(os.sep, "/")


def _absolute(path: str | Path) -> str:
    return os.path.abspath(path)  # noqa: PTH100  # Path.resolve would follow links


def _position(place: Place) -> tuple[str, int, int, int]:
    return (place.path, place.cell or 0, place.line, place.column or 0)


def _error(what: str, fix: str) -> CheckError:
    why = "without its baseline, the run would report old findings as new ones."
    return CheckError(what, why=why, fix=fix, more="baseline")
