"""Modes that are told of every operation: what the watcher does is none of theirs.

A `TorchDispatchMode` may count operations or flops, and a `TorchFunctionMode` is called for a look
at `tensor.grad`. So the watcher steps out of them. Where operations are written down as a graph
(`make_fx`, `torch.export`), nothing is trained, and it is blind.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import _get_dispatch_mode_pre_dispatch
from torch.utils._device import DeviceContext

# Asked at every event, so in the fewest words there are: how many modes are on.
dispatching = torch._C._len_torch_dispatch_stack  # noqa: SLF001
overriding = torch._C._len_torch_function_stack  # noqa: SLF001
_TRACERS = tuple(
    getattr(torch._C._TorchDispatchModeKey, name)  # noqa: SLF001
    for name in ("PROXY", "FUNCTIONAL")
)


def is_traced() -> bool:
    """Say whether operations are written down."""
    return dispatching() > 0 and any(
        torch._C._get_dispatch_mode(key) is not None  # noqa: SLF001
        or _get_dispatch_mode_pre_dispatch(key) is not None
        for key in _TRACERS
    )


class Left:
    """The modes of this thread, which it is out of until it goes back to them."""

    __slots__ = ("_dispatch", "_function")

    def __init__(self) -> None:
        pop = torch._C._pop_torch_function_stack  # noqa: SLF001
        self._function: list[Any] = [pop() for _ in range(overriding())]
        pop = torch._C._pop_torch_dispatch_stack  # noqa: SLF001
        self._dispatch: list[Any] = [pop(None) for _ in range(dispatching())]

    def back(self) -> None:
        """Go back to them, in their order."""
        while self._dispatch:
            torch._C._push_on_torch_dispatch_stack(self._dispatch.pop())  # noqa: SLF001
        while self._function:
            torch._C._push_on_torch_function_stack(self._function.pop())  # noqa: SLF001


def leave() -> Left | None:
    """Step out of the modes that are on; None if none of them looks at anything."""
    if not dispatching():
        at = torch._C._get_function_stack_at  # noqa: SLF001
        # Of a default device there is one all the time: it looks at what makes tensors alone.
        if all(type(at(number)) is DeviceContext for number in range(overriding())):
            return None
    return Left()
