"""What a rule reports: a finding, the events that show it, and the edits that would mend it."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from instep.trace.plain import dataclass, field

if TYPE_CHECKING:
    from instep.trace import Event, Place


class Severity(IntEnum):
    """How bad it is; comparable: `finding.severity >= Severity.WARNING`."""

    INFO = 1
    """It costs time or memory."""
    WARNING = 2
    """The update may be wrong."""
    ERROR = 3
    """The update is wrong."""

    @property
    def word(self) -> str:
        """The name as it is written in options and reports.

        >>> Severity.WARNING.word
        'warning'
        """
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Related:
    """Another place that shows the mistake: "backward here", "cleared here"."""

    place: Place
    label: str


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace what stands between two positions of the source by other text.

    Lines count from 1 and columns from 0 in UTF-8 bytes, as in `ast`; an insertion has both
    positions equal.
    """

    line: int
    column: int
    end_line: int
    end_column: int
    text: str


@dataclass(frozen=True, slots=True)
class Fix:
    """Edits that mend a finding; proved by the checker before anybody sees them."""

    title: str
    """What it does, as an order: "divide the loss by the number of micro-batches"."""
    edits: tuple[Edit, ...]
    is_safe: bool = True
    """False if it changes a behaviour that looks deliberate."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One mistake: where to change something, what it does to the update, and what shows it."""

    code: str
    """"INS101"."""
    name: str
    """"missing-zero-grad"."""
    severity: Severity
    place: Place
    message: str
    """One sentence, with the number where there is one."""
    related: tuple[Related, ...] = ()
    condition: str | None = None
    """The path that shows it: "when scaler is not None"."""
    fix: Fix | None = None
    evidence: tuple[Event, ...] = field(default=(), repr=False, compare=False)
    """The events that show it, the one at `place` first: what the fix is made from."""
    advice: str | None = None
    """What to do where no fix is offered, if it is not what the page begins with."""

    @property
    def path(self) -> str:
        """The file that it is in."""
        return self.place.path

    @property
    def line(self) -> int:
        """Its line there, from 1; in a notebook, in the cell."""
        return self.place.line
