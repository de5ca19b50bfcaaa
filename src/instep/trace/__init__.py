"""The trace: what happened to the gradients, as small events that say where they came from.

An engine, a checker and a watcher all produce traces, and every rule reads one. This package
imports nothing but the standard library.

>>> from instep.trace import Backward, Drawn, EpochEnd, Place, Step, Trace, Zero, windows
>>> trace = Trace()
>>> for i in range(3):  # a gate of 2 over 3 micro-batches
...     trace.record(Drawn("loader", index=i, items=8))
...     place = Place("train.py", 14)
...     trace.record(Backward(("optimizer",), factor=0.5, items=8, place=place))
...     if (i + 1) % 2 == 0:
...         trace.record(Step("optimizer", every=2))
...         trace.record(Zero(("optimizer",)))
>>> trace.record(EpochEnd("loader"))
>>> full, short = windows(trace)["optimizer"]
>>> full.micro_batches, full.items, full.factor_sum, full.closed_by
(2, 16, 1.0, 'step')
>>> short.micro_batches, short.leftover, short.closed_by
(1, 1, None)
>>> print(short.backwards[0].place)
train.py:14
>>> Trace.from_json(trace.to_json()) == trace
True
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from instep.trace.place import Place, here

if TYPE_CHECKING:
    from instep.trace.codec import TraceFormatError
    from instep.trace.events import (
        KINDS,
        WEIGHTS_MOVED,
        Assumed,
        Backward,
        Called,
        Clip,
        Created,
        Drawn,
        EpochEnd,
        Event,
        Fact,
        Forward,
        GradEdited,
        GradRead,
        LossKept,
        Measured,
        Mode,
        Opaque,
        Rebound,
        Role,
        ScalerUpdate,
        Schedule,
        Step,
        Unscale,
        WindowDiscarded,
        WindowOpened,
        Zero,
    )
    from instep.trace.rebuild import optimizers, windows, windows_of
    from instep.trace.record import WindowRecord
    from instep.trace.trace import Trace

# Loaded on first use: a checker that finds no loop in a file needs places, and nothing else.
_HOME = {
    "KINDS": "events",
    "Trace": "trace",
    "TraceFormatError": "codec",
    "WindowRecord": "record",
    "optimizers": "rebuild",
    "windows": "rebuild",
    "windows_of": "rebuild",
}

__all__ = [
    "KINDS",
    "WEIGHTS_MOVED",
    "Assumed",
    "Backward",
    "Called",
    "Clip",
    "Created",
    "Drawn",
    "EpochEnd",
    "Event",
    "Fact",
    "Forward",
    "GradEdited",
    "GradRead",
    "LossKept",
    "Measured",
    "Mode",
    "Opaque",
    "Place",
    "Rebound",
    "Role",
    "ScalerUpdate",
    "Schedule",
    "Step",
    "Trace",
    "TraceFormatError",
    "Unscale",
    "WindowDiscarded",
    "WindowOpened",
    "WindowRecord",
    "Zero",
    "here",
    "optimizers",
    "windows",
    "windows_of",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        message = f"module 'instep.trace' has no attribute {name!r}"
        raise AttributeError(message)
    found = getattr(import_module(f"instep.trace.{_HOME.get(name, 'events')}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
