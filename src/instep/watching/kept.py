"""Graphs that outlive the update they were made for."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

from instep.watching.holders import Holder, holder

if TYPE_CHECKING:
    from torch import Tensor

    from instep.trace import Place
    from instep.watching.gauges import Gauges

_MOST = 64
"""Graphs that are followed at a time."""
_KEPT = 24
"""Graphs of earlier updates that are alive when it is said that they are kept: whoever needs the
latest few, for a mean of them, does not keep as many."""
_KEPT_TO_THE_END = 8
"""Those of a short job, when it ends."""
_LET_GO = 4
"""Of those that are alive, one in so many may have been let go. If it is more, what keeps them has
an end, as the list of one epoch has, and memory does not grow beyond that."""
_RECENT = 2
"""Updates whose graphs may still be in use."""
_DEEP = 16
"""Operations below a loss at which its graph is marked: what is kept may be a part of it."""
_MOST_COLLECTIONS = 3


class _Token:
    """Put into a graph, it lives as long as that graph."""

    __slots__ = ("__weakref__",)


class KeptGraphs:
    """Marks graphs, and counts those that are still alive some updates later."""

    def __init__(self, gauges: Gauges) -> None:
        self._gauges = gauges
        self._tokens: list[tuple[int, Any, Place | None]] = []
        self._collections = 0
        self._told = False
        self._holder: Holder | None = None
        self._least = _KEPT
        self._looked = 0  # at the updates until then
        self._gone = 0  # graphs of earlier updates that were let go after all
        self._marked = -1  # the update before which a graph was last marked
        self._is_whole = True  # none that may be alive was left unmarked

    def before_backward(self, root: Tensor, updates: int) -> None:
        """Mark the graph of a loss."""
        is_full = len(self._tokens) >= _MOST
        if is_full or updates > self._marked + 1:
            self._is_whole = False
        self._marked = updates
        node = None if is_full else _deep(root.grad_fn)
        if node is not None:
            token = _Token()
            node.metadata["instep"] = token
            self._tokens.append((updates, weakref.ref(token), None))

    def after_backward(self, place: Place | None) -> None:
        """Take note of where it was."""
        if self._tokens and self._tokens[-1][2] is None:
            self._tokens[-1] = (*self._tokens[-1][:2], place)

    def after_step(self, updates: int, *, is_last: bool = False) -> None:
        """Count the graphs of earlier updates that are still alive."""
        if is_last and self._told:
            # Functions that have returned have let go of what they had kept: that says nothing of
            # the job, whose memory did grow until then.
            return
        if not self._tokens:
            return
        old = self._old(updates)
        if is_last:
            self._least = _KEPT_TO_THE_END
        is_new = not self._told and self._grows(old)
        if is_new:
            if self._collections >= _MOST_COLLECTIONS:
                return
            # Objects that hold each other are nobody's: they go when Python looks for them.
            self._collections += 1
            gc.collect()
            old = self._old(updates)
        self._told = self._grows(old)
        if not self._told:
            self._gauges.hide("graphs-kept", None)
            return
        if is_new:
            self._holder = holder(self._least)
        if self._holder is not None and self._holder.is_bounded:
            return
        self._gauges.show(
            "graphs-kept",
            None,
            float(len(old)),
            unit="graphs" if self._is_whole else "graphs at least",
            subject=None if self._holder is None else self._holder.name,
            place=old[0],
        )

    def _grows(self, old: list[Place | None]) -> bool:
        """Say whether there are many, and ever more of them."""
        return len(old) >= max(self._least, _LET_GO * self._gone)

    def _old(self, updates: int) -> list[Place | None]:
        """Return the places of graphs that should be gone."""
        alive, since = [], self._looked - _RECENT
        for kept in self._tokens:
            if kept[1]() is not None:
                alive.append(kept)
            elif kept[0] < since:
                self._gone += 1
        self._tokens, self._looked = alive, updates
        return [place for made, _, place in alive if made < updates - _RECENT]


def _deep(node: Any) -> Any:
    """Return an operation some way below another one, but none that lives with a parameter."""
    for _ in range(_DEEP):
        following = () if node is None else node.next_functions
        below = following[0][0] if following else None
        if below is None or not below.next_functions:
            break
        node = below
    return node
