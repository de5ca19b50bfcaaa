"""What a window's losses are multiplied by, before and after a fix: what its proof has to show.

A rule that finds a wrong factor is silent about any other one, the right and the wrong. So a fix of
it is held against the windows themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.rules.accumulation import is_close, is_mixed, judged, updates, used_by_others
from instep.trace import Drawn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from instep.rules.view import View
    from instep.trace import Place, Step, WindowRecord


def accumulated(view: View) -> Iterator[tuple[WindowRecord, Step]]:
    """Give the updates that are made of several micro-batches or pieces by intent."""
    is_cut = any(drawn.of is not None for drawn in view.trace.of(Drawn))
    for optimizer, windows in judged(view):
        others = used_by_others(view, optimizer)
        for window, step in updates(windows):
            if (is_cut or (step.every or 0) > 1) and not is_mixed(window, others):
                yield window, step


def divides_more(before: Sequence[View], after: Sequence[View]) -> bool:
    """Say whether more backwards than before are in windows that are a mean of their losses, and
    no more in such as nothing can be said about.
    """
    (even, unknown), (now, hidden) = _count(before), _count(after)
    return now > even and hidden <= unknown


def divides_as_well(before: Sequence[View], after: Sequence[View]) -> bool:
    """Say the same of as many as before."""
    (even, unknown), (now, hidden) = _count(before), _count(after)
    return now >= even and hidden <= unknown


def _count(views: Iterable[View]) -> tuple[int, int]:
    """Count the backwards that begin a window: where all are means, and where no one can say.

    A size that is a parameter is known once a gate has asked for it, which is after the first
    window has begun.
    """
    found: dict[Place | None, set[bool | None]] = {}
    for view in views:
        for window, step in accumulated(view):
            if window.kept:
                found.setdefault(window.kept[0].place, set()).add(_is_mean(window, step))
    known = [states - {None} for states in found.values()]
    return known.count({True}), known.count(set())


def _is_mean(window: WindowRecord, step: Step) -> bool | None:
    """Say whether the losses of a window are divided by its size, or by that of a full one."""
    total = window.factor_sum
    if total is None:
        return None
    share = total / len(window.kept)
    return any(is_close(share * size, 1.0) for size in {step.every or 0, window.micro_batches})
