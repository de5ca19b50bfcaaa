"""Models that would reduce gradients by themselves, kept from it while a window is open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from instep.engine.ranks.world import REPLICATED, wrapped_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

# DDP reduces in a backward if its forward found the first of them set, and in the very first one of
# a static graph in any case; by the others it sends the buffers of rank 0 to everyone in a forward,
# for which a rank without a batch would not be there.
QUIET = (
    "require_backward_grad_sync",
    "static_graph",
    "require_forward_param_sync",
    "broadcast_buffers",
)


class Quiet:
    """DDP modules, silent from the opening of a window to its end."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        found = wrapped_in(models)
        self._modules = [module for module, wrapper in found if wrapper == REPLICATED]
        self._before: list[tuple[Any, dict[str, bool]]] = []

    def begin(self) -> None:
        """Switch off what talks."""
        if not self._before:
            for module in self._modules:
                self._before.append((module, {name: getattr(module, name) for name in QUIET}))
                for name in QUIET:
                    setattr(module, name, False)

    def end(self) -> None:
        """Put everything as its user had it."""
        for module, settings in self._before:
            for name, value in settings.items():
                setattr(module, name, value)
        self._before = []
