"""Facts as events tell them: what a model is, and numbers that mean something."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, TypeVar

from instep.watching.modes import notices_mode

if TYPE_CHECKING:
    from torch.nn import Module

    from instep.trace import Fact, Place

_V = TypeVar("_V")
_MOST = 16
"""Different numbers of one happening at one place after which they are taken for unknown."""


_STATEFUL = ("RNN", "LSTM", "GRU")


class Few:
    """Lets numbers through that are the same again and again.

    A limit that is computed anew for every update would make every update a new story.

    >>> few = Few()
    >>> few("limit", None, 1.0), [few("limit", None, n / 100) for n in range(99)][-1]
    (1.0, None)
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[str, Place | None], set[Any]] = defaultdict(set)

    def __call__(self, what: str, place: Place | None, value: _V) -> _V | None:
        """Return a number of an event, or None if it is another one all the time."""
        seen = self._seen[what, place]
        if len(seen) <= _MOST:
            seen.add(value)
        return value if len(seen) <= _MOST else None


def of_model(model: Module) -> dict[str, Fact]:
    """Return what is known about a model."""
    parameters = list(model.parameters())
    kinds = {type(part).__name__ for part in model.modules()}
    norms = any("BatchNorm" in kind for kind in kinds)
    facts: dict[str, Fact] = {
        "type": type(model).__name__,
        "trainable": any(p.requires_grad for p in parameters),
        "batchnorm": norms,
        "modeless": not notices_mode(model),
        "written": True,
    }
    if parameters and not facts["trainable"]:
        facts["frozen"] = True
    if any(kind.startswith(_STATEFUL) for kind in kinds):
        facts["stateful"] = True
    if hasattr(model, "require_backward_grad_sync"):
        facts["distributed"] = "ddp"
    return facts
