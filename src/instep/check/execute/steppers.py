"""instep's own loops: a window divides, scales and steps by itself, so what it is given is judged.

Nothing else about its updates can be wrong in the source: the engine sees to that when it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.check.execute import backward, numbers, tensors
from instep.check.execute.things import Stepper, Window, Windows
from instep.check.execute.values import Unknown

if TYPE_CHECKING:
    from instep.check.execute.arguments import Call
    from instep.check.execute.machine import Machine
    from instep.check.execute.tensors import Tensor
    from instep.check.execute.values import Value

KIND = "instep"
PATH = "instep.Stepper"
_LEAST = 3
"""What a loss is divided by, if it is only a number: a half is as often a part of the loss."""


def is_windows(short: str, call: Call) -> bool:
    """Say whether a method of something unknown goes through a loader in windows."""
    return call.name == "windows" and "size" in call.kwargs and short.lower().endswith("stepper")


def of_stepper(m: Machine, _value: Stepper, call: Call) -> Value:
    """Call a method of a stepper."""
    if call.name == "windows":
        return Windows(call.kwargs.get("size"))
    if call.name == "window":
        return Window()
    return call.unknown(m)


def of_window(m: Machine, value: Window, call: Call) -> Value:
    """Call a method of a window: its `backward` is all that adds gradients.

    What it is given divided or scaled is written down. A right loop leaves no more behind than that
    it counts for itself.
    """
    if call.name != "backward":
        return call.unknown(m)
    m.managed = m.managed or KIND
    call.note(m, "opaque", what="window.backward", values=None)
    loss = tensors.as_tensor(m, call.args[0], call.node) if call.args else None
    if loss is not None:
        by = _divided(loss, value.size)
        if by is not None or loss.scaled is not None:
            made = tensors.copy(m, loss, call.node)
            made.window, made.again = True, by
            backward.record(m, made, call)
    return None


def _divided(loss: Tensor, size: Value) -> str | int | None:
    """Return the number of micro-batches that a loss is divided by, as its window is anyway."""
    if loss.reduction == "sum":
        return None  # over the items, whatever their number is called
    for by, is_sum in loss.divisors:
        if isinstance(by, Unknown):
            name = by.known_as or ""
            is_size = isinstance(size, Unknown) and numbers.key(size) == by.key
            counts = name in numbers.COUNTS and "batch_size" not in name and not is_sum
            if is_size or counts:
                return name or "its size"
        elif by == size and isinstance(by, int) and by >= _LEAST and not is_sum:
            return by
    return None
