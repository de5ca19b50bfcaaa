"""What a run is made with: the judge and the mender, loaded when the first file needs them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from instep.check.units import Unit
    from instep.rules.finding import Finding
    from instep.trace import Place

    Accept = Callable[[Unit, Sequence[Finding]], Sequence[Finding]]


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
    def unjudged(self) -> Sequence[NotJudged]:
        """Loops that nothing can be said about."""

    @property
    def loops(self) -> int:
        """How many loops there are."""


class Mended(Protocol):
    """A unit's text with fixes."""

    @property
    def text(self) -> str:
        """The whole text."""

    @property
    def fixed(self) -> tuple[Finding, ...]:
        """What is mended in it."""


class Tools(NamedTuple):
    """The functions that a run calls; tests hand in their own."""

    wanted: Callable[[str], bool]
    """Whether a text could hold anything to judge."""
    judge: Callable[[Unit, frozenset[str]], Judgement]
    followed: Callable[[Unit], Collection[str] | None]
    """The other files that the last judgement of a unit rests on; None: nobody knows."""
    with_fixes: Callable[[Unit, Judgement, Callable[[Unit], Judgement]], tuple[Finding, ...]]
    mend: Callable[[Unit, bool, Callable[[Unit], Judgement], Accept], Mended]


def load() -> Tools:
    """Return the real ones."""
    judging: Any = import_module("instep.check.judge")
    projects: dict[str, Any] = {}

    def judge(unit: Unit, codes: frozenset[str]) -> Judgement:
        if unit.path not in projects:
            # One per file: what is found in a file must not depend on which ones came before it.
            projects.clear()
            projects[unit.path] = judging.Project(unit.path)
        judged: Judgement = judging.judge(unit, codes=codes, project=projects[unit.path])
        return judged

    def followed(unit: Unit) -> Collection[str] | None:
        read: Collection[str] | None = getattr(projects.get(unit.path), "read", None)
        return read

    def with_fixes(
        unit: Unit, judgement: Judgement, again: Callable[[Unit], Judgement]
    ) -> tuple[Finding, ...]:
        fixing: Any = import_module("instep.check.fixing")
        found: tuple[Finding, ...] = fixing.with_fixes(unit, judgement, judge=again)
        return found

    def mend(
        unit: Unit,
        unsafe: bool,  # noqa: FBT001  # an adapter; callers of `mend` name it
        again: Callable[[Unit], Judgement],
        accept: Accept,
    ) -> Mended:
        fixing: Any = import_module("instep.check.fixing")
        mended: Mended = fixing.fix_unit(unit, unsafe=unsafe, judge=again, accept=accept)
        return mended

    return Tools(judging.wanted, judge, followed, with_fixes, mend)
