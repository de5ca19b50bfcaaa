"""What checking one file gave, in positions of the file that the user has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.rules.finding import Finding, Severity
from instep.trace.plain import dataclass

if TYPE_CHECKING:
    from instep.check.problems import Diagnostic
    from instep.trace import Place

NOT_CHECKED_CODE, NOT_CHECKED_NAME = "INS000", "not-checked"


@dataclass(frozen=True, slots=True)
class Unjudged:
    """A loop that nothing can be said about, and why."""

    place: Place
    reason: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result for one file."""

    path: str
    """As shown to the user."""
    findings: tuple[Finding, ...] = ()
    """What is to be reported; their fixes' edits are positions of the file, too."""
    unjudged: tuple[Unjudged, ...] = ()
    loops: int = 0
    silenced: tuple[Finding, ...] = ()
    """Findings that a comment in the file silences."""
    elsewhere: tuple[Finding, ...] = ()
    """What is wrong in files that this one imports; not yet asked is whether they agree."""
    diagnostic: Diagnostic | None = None
    """Why the file was not checked, if it was not."""
    fixed: tuple[Finding, ...] = ()
    """Findings that are mended, and so not among `findings`."""
    before: bytes | None = None
    after: bytes | None = None
    """The file's content without and with its fixes, where there are any."""
    followed: tuple[str, ...] | None = ()
    """Other files that the judgement rests on; None: nobody knows which."""


def as_finding(diagnostic: Diagnostic) -> Finding:
    """Return a diagnostic in the form of a finding, for reports that know nothing else."""
    return Finding(
        NOT_CHECKED_CODE,
        NOT_CHECKED_NAME,
        Severity.WARNING,
        diagnostic.place,
        f"this file was not checked: {diagnostic.what} {_sentence(diagnostic.fix)}",
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
