"""Which optimizers are watched: all of them, or those that were named and those of named models."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from torch.nn import Module
from torch.optim import Optimizer

from instep.watching.wrappers import core_optimizer

if TYPE_CHECKING:
    from collections.abc import Iterable


class Scope:
    """What the user has named.

    >>> import torch
    >>> one, two = torch.optim.SGD([torch.zeros(1)]), torch.optim.SGD([torch.zeros(1)])
    >>> Scope().holds(two), Scope([one]).holds(one), Scope([one]).holds(two)
    (True, True, False)
    """

    def __init__(self, things: Iterable[Any] = ()) -> None:
        named = list(things)
        optimizers = [thing for thing in named if isinstance(thing, Optimizer)]
        self._optimizers = weakref.WeakSet([*optimizers, *map(core_optimizer, optimizers)])
        self._models = [weakref.ref(thing) for thing in named if isinstance(thing, Module)]
        self.is_all = not (optimizers or self._models)
        """Nobody has named a model or an optimizer."""
        # By optimizer: how many groups it had when it was looked at, and what was found.
        self._known: weakref.WeakKeyDictionary[Optimizer, tuple[int, bool]] = (
            weakref.WeakKeyDictionary()
        )

    def holds(self, optimizer: Optimizer) -> bool:
        """Say whether an optimizer was named, or trains any of a model that was."""
        if self.is_all or optimizer in self._optimizers:
            return True
        groups = len(optimizer.param_groups)
        known = self._known.get(optimizer)
        if known is None or known[0] != groups:
            known = self._known[optimizer] = (groups, self._trains(optimizer))
        return known[1]

    def _trains(self, optimizer: Optimizer) -> bool:
        models = (weak() for weak in self._models)
        mine = {id(p) for model in models if model is not None for p in model.parameters()}
        return any(id(p) in mine for group in optimizer.param_groups for p in group["params"])
