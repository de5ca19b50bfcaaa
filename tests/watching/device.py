"""A device that is not there, and on which every wait is noted.

Tensors on torch's "meta" device have no numbers. Whoever asks for one of them would wait for a GPU;
here he gets an answer that means nothing, and who has asked is written down. For all of our code
such a tensor is one that is not on the host, so that it takes the ways that it takes on a GPU.
"""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import instep
from instep.watching import onlookers, patches, seam
from instep.watching.seams import backward, clipping, modules, optimizers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from torch import Tensor

_aten = torch.ops.aten
_OURS = instep.__file__[: -len("__init__.py")]
_ANSWERED = {
    _aten._local_scalar_dense.default,
    _aten.is_nonzero.default,
    _aten.equal.default,
    _aten.nonzero.default,
    _aten.masked_select.default,
}
"""What has to wait for its answer. A copy to the host does so, too."""
_UNKNOWN = {
    _aten._amp_foreach_non_finite_check_and_unscale_.default,
    _aten._amp_update_scale_.default,
}
"""What torch cannot do without numbers, and what nobody asks back."""


class Waits(TorchDispatchMode):
    """Counts waits by who asked: a line of ours, or "" for the job's own.

    answer: what all numbers are: zero, or another one.
    """

    def __init__(self, *, answer: float) -> None:
        super().__init__()
        self._answer = answer
        self.at: Counter[str] = Counter()
        self.sent = 0
        """Numbers that are fetched without waiting."""
        self.operations = 0
        """Of torch, views and those on the host included."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.operations += 1
        if func in _UNKNOWN:
            return None
        if func in _ANSWERED and any(map(_is_there, args)):
            self.at[_asking()] += 1
            return self._answered(func, args[0])
        is_copied = func is _aten._to_copy.default and _is_there(args[0])
        if is_copied and _is_host(kwargs.get("device")):
            if kwargs.get("non_blocking"):
                self.sent += 1
            else:
                self.at[_asking()] += 1
            dtype = kwargs.get("dtype") or args[0].dtype
            return torch.full(args[0].shape, self._answer, dtype=dtype, device="cpu")
        if func is _aten._local_scalar_dense.default and not isinstance(args[0], torch.Tensor):
            return args[0]  # a number that was a tensor for autograd alone
        return func(*args, **kwargs)

    def _answered(self, func: Any, asked: Tensor) -> Any:
        if func is _aten.nonzero.default:
            return asked.new_empty((int(self._answer), asked.dim()), dtype=torch.long)
        if func is _aten.masked_select.default:
            return asked.new_empty(int(self._answer))
        is_number = func is _aten._local_scalar_dense.default
        return float(self._answer) if is_number and asked.is_floating_point() else self._answer


class Event:
    """Something that a device passes a while after it was recorded."""

    def __init__(self, device: Any) -> None:
        del device
        self._asked = 0

    def record(self) -> None:
        """Do nothing: it is passed when it was asked for twice."""

    def query(self) -> bool:
        self._asked += 1
        return self._asked > 2


@contextmanager
def noted(*, answer: float = True) -> Iterator[Waits]:
    """Have tensors be made on the device, and note who waits for it."""
    waits = Waits(answer=answer)
    with _part_of_torch(), mock.patch.object(torch, "Event", Event), torch.device("meta"), waits:
        yield waits


@contextmanager
def _part_of_torch() -> Iterator[None]:
    """Have the watcher see no mode: the device is none of the user's own, which it steps out of."""
    counts = (onlookers.dispatching, onlookers.overriding)
    with ExitStack() as stack:
        for module in (onlookers, patches, seam, backward, clipping, modules, optimizers):
            for name, value in list(vars(module).items()):
                if value in counts:
                    stack.enter_context(mock.patch.object(module, name, _no_modes))
        yield


def _no_modes() -> int:
    return 0


def _is_there(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "meta"


def _is_host(device: Any) -> bool:
    return device is not None and torch.device(device).type == "cpu"


def _asking() -> str:
    """Return the innermost line of ours, if it asked and did not only pass on a call."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_OURS):
            return f"{file[len(_OURS) :]}:{frame.f_lineno}"
        if not file.startswith(torch.__path__[0]):
            return ""
        frame = frame.f_back
    return ""
