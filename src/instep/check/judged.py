"""What a run asks of a judge and of a mender. Only a checker of types reads it: at run time
protocols are slow to define, and nobody asks for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from instep.rules.finding import Finding
    from instep.trace import Place


class NotJudged(Protocol):
    """A loop that was not judged."""

    @property
    def place(self) -> Place:
        """Where it is."""

    @property
    def reason(self) -> str:
        """Why it was not."""


class Judgement(Protocol):
    """What the judge says about a unit."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Mistakes, without fixes."""

    @property
    def again(self) -> Collection[tuple[str, Place]]:
        """Findings, by code and place, of which a reader has heard already."""

    @property
    def elsewhere(self) -> tuple[Finding, ...]:
        """Mistakes in files that the unit imports, which show only together with it."""

    @property
    def unjudged(self) -> Sequence[NotJudged]:
        """Loops that nothing can be said about."""

    @property
    def loops(self) -> int:
        """How many loops there are."""

    @property
    def followed(self) -> Collection[str]:
        """Other files that this rests on; some of them need not exist."""


class Mended(Protocol):
    """A unit's text with fixes."""

    @property
    def text(self) -> str:
        """The whole text."""

    @property
    def fixed(self) -> tuple[Finding, ...]:
        """What is mended in it."""
