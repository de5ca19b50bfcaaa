"""Hand-made traces of training loops: short to write, with a line for each thing that happens."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from typing import Any

from instep.rules import Finding
from instep.rules.registry import rulebook
from instep.rules.view import View
from instep.trace import (
    Backward,
    Created,
    Drawn,
    EpochEnd,
    Event,
    Opaque,
    Place,
    Step,
    Trace,
    Zero,
)

# One line for each kind of event, so that a test can say where it expects a finding.
LINES = {"drawn": 3, "zero": 4, "forward": 5, "backward": 6, "edit": 7, "step": 8, "end": 9}
JOB = Created("job", "job", {"source": "check"})
MANAGED = Created("job", "job", {"source": "check", "managed": "accelerate"})
ENGINE = Created("job", "job", {"source": "check", "managed": "deepspeed"})


def at(line: int) -> Place:
    return Place("train.py", line, 0, line, 10)


def drawn(index: int = 0, loader: str = "loader", **more: Any) -> Drawn:
    return Drawn(loader, index, place=at(LINES["drawn"]), **more)


def backward(*optimizers: str, line: int = LINES["backward"], **more: Any) -> Backward:
    facts = {"loss": "loss", "factor": 1.0, **more}
    return Backward(optimizers or ("sgd",), place=at(line), **facts)


def zero(*optimizers: str, line: int = LINES["zero"], **more: Any) -> Zero:
    return Zero(optimizers or ("sgd",), place=at(line), **more)


def step(optimizer: str = "sgd", line: int = LINES["step"], **more: Any) -> Step:
    return Step(optimizer, place=at(line), **more)


def end(batches: int, epoch: int = 0, loader: str = "loader", **more: Any) -> EpochEnd:
    return EpochEnd(loader, epoch, batches, place=at(LINES["end"]), **more)


def opaque(*optimizers: str) -> Opaque:
    return Opaque(optimizers or None, "helper(optimizer)")


def plain(body: Iterable[Event], *, batches: int = 3, epochs: int = 2) -> list[Event]:
    """Run the same events for every batch."""
    body = list(body)
    events: list[Event] = [JOB]
    for epoch in range(epochs):
        for index in range(batches):
            events += [drawn(index), *body]
        events.append(end(batches, epoch))
    return events


def gated(
    every: int = 3,
    *,
    batches: int = 5,
    epochs: int = 2,
    steps_at: Any = None,
    factor: float | None = None,
    clears_at_start: bool = True,
    clears_after_step: bool = True,
    after_backward: Iterable[Event] = (),
    before_step: Iterable[Event] = (),
    after_epoch: Iterable[Event] = (),
    is_literal: bool = True,
    written: str | None = None,
    facts: dict[str, Any] | None = None,
    runs_on: bool = False,
    **more: Any,
) -> list[Event]:
    """Accumulate: `steps_at(i, batches)` is the gate; `(i + 1) % every == 0` unless said."""
    gate = steps_at or (lambda i, batches: (i + 1) % every == 0)
    more = {"factor": 1 / every if factor is None else factor, **more}
    events: list[Event] = [JOB]
    if facts is not None:
        events.append(Created("loader", "loader", facts))
    total = 0
    for epoch in range(epochs):
        if clears_at_start:
            events.append(zero(line=2))
        for index in range(batches):
            events += [drawn(index), backward(**more), *after_backward]
            if gate(total if runs_on else index, batches):
                where = written or ("literal" if is_literal else "default")
                events += [*before_step, step(every=every, every_written=where)]
                if clears_after_step:
                    events.append(zero())
            total += 1
        events += [end(batches, epoch), *after_epoch]
    return events


def pieces(
    *,
    count: int = 3,
    type_: str = "patches",
    is_patches: bool = True,
    before: Iterable[Event] = (),
    each: Iterable[Event] = (),
    after: Iterable[Event] = (),
    batches: int = 3,
) -> list[Event]:
    """Run the same events for every piece of every batch."""
    facts = {"type": type_, "pieces": True, **({"patches": True} if is_patches else {})}
    events: list[Event] = [JOB, Created("piece", "loader", facts)]
    each = list(each)
    for index in range(batches):
        events += [drawn(index), *before]
        for part in range(count):
            events += [drawn(part, "piece", of="loader"), *each]
        events += [end(count, loader="piece", of="loader"), *after]
    return [*events, end(batches)]


def found(code: str, events: Iterable[Event]) -> list[Finding]:
    # Events that happen twice are two events, as they are in a real trace.
    return list(rulebook()[code].judge(View(Trace(map(copy, events)))))


def only(code: str, events: Iterable[Event]) -> Finding:
    (finding,) = found(code, events)
    assert finding.code == code
    assert finding.message.endswith(".")
    assert finding.message.startswith(("`", "BatchNorm")) or finding.message[0].islower()
    assert finding.evidence[0].place == finding.place
    return finding
