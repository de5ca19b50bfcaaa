"""Graphs that outlive the update they were made for."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

from instep.watching.holders import holder

if TYPE_CHECKING:
    from torch import Tensor

    from instep.trace import Place
    from instep.watching.gauges import Gauges

_MOST = 64
"""Graphs that are followed at a time."""
_KEPT = 8
"""Graphs of earlier updates that are alive when it is said that they are kept."""
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
        self._holder: str | None = None
        self._marked = -1  # the update before which a graph was last marked
        self._is_whole = True  # none that may be alive was left unmarked

    def before_backward(self, root: Tensor, updates: int) -> None:
        """Mark the graph of a loss."""
        node = _deep(root.grad_fn)
        if len(self._tokens) >= _MOST or updates > self._marked + 1:
            self._is_whole = False
        self._marked = updates
        if node is not None and len(self._tokens) < _MOST:
            token = _Token()
            node.metadata["instep"] = token
            self._tokens.append((updates, weakref.ref(token), None))

    def after_backward(self, place: Place | None) -> None:
        """Take note of where it was."""
        if self._tokens and self._tokens[-1][2] is None:
            self._tokens[-1] = (*self._tokens[-1][:2], place)

    def after_step(self, updates: int) -> None:
        """Count the graphs of earlier updates that are still alive."""
        if not self._tokens:
            return
        old = self._old(updates)
        if len(old) >= _KEPT and not self._told and self._collections < _MOST_COLLECTIONS:
            # Objects that hold each other are nobody's: they go when Python looks for them.
            self._collections += 1
            gc.collect()
            old = self._old(updates)
        elif len(old) >= _KEPT and not self._told:
            return
        was_told, self._told = self._told, len(old) >= _KEPT
        if self._told:
            if not was_told:
                self._holder = holder(_KEPT)
            count = float(len(old))
            unit = "graphs" if self._is_whole else "graphs at least"
            self._gauges.show(
                "graphs-kept", None, count, unit=unit, subject=self._holder, place=old[0]
            )
        else:
            self._gauges.hide("graphs-kept", None)

    def _old(self, updates: int) -> list[Place | None]:
        """Return the places of graphs that should be gone."""
        self._tokens = [kept for kept in self._tokens if kept[1]() is not None]
        return [place for made, _, place in self._tokens if made < updates - _RECENT]


def _deep(node: Any) -> Any:
    """Return an operation some way below another one, but none that lives with a parameter."""
    for _ in range(_DEEP):
        below = node.next_functions[0][0] if node is not None and node.next_functions else None
        if below is None or not below.next_functions:
            break
        node = below
    return node
