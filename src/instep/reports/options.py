"""What a report may be told besides the findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.trace.plain import dataclass

if TYPE_CHECKING:
    from instep.rules import Severity


@dataclass(frozen=True, slots=True)
class RuleInfo:
    """What a report says about a rule itself, whether it found something or not."""

    code: str
    name: str
    summary: str
    """One sentence."""
    severity: Severity
    page: str = ""
    """The whole page, in Markdown; empty: there is none."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to render; every format reads what concerns it and ignores the rest."""

    colour: bool = False
    """See `wants_colour`."""
    width: int = 100
    """Columns of the terminal; source lines that are longer are shown in part."""
    rules: tuple[RuleInfo, ...] = ()
    """The rulebook, for formats that describe rules."""
    version: str | None = None
    """The version of the tool, for formats that name it."""


DEFAULT = Options()
