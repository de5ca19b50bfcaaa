"""Notes of what happens around the updates, made into events: batches, modes, kept losses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from instep.check.execute.renewals import renewed
from instep.check.execute.tensors import Tensor
from instep.check.execute.things import Optimizer
from instep.check.execute.values import ListValue
from instep.trace import (
    Called,
    Drawn,
    EpochEnd,
    Forward,
    LossKept,
    Mode,
    Opaque,
    Rebound,
    ScalerUpdate,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from instep.check.execute.journal import Loop
    from instep.check.execute.machine import Machine
    from instep.check.execute.program import Scope
    from instep.check.execute.settle import Settler
    from instep.check.execute.things import Net, Scaler
    from instep.check.execute.values import Thing, Value
    from instep.trace import Event, Place


def _is_data(loop: Loop) -> bool:
    """Say whether a loop draws anything: one that goes round another loop over data does not,
    and one without a forward of its own goes over parts of a loss.
    """
    if loop.kind in {"range", "while"}:
        if loop.nested:
            return False
        if loop.draws:
            return not loop.is_batches()
    return loop.is_batches() or loop.forwards > 0 or loop.draws


def _of(s: Settler, loop: Loop) -> str | None:
    """Return what a loop over pieces takes them from."""
    if loop.is_batches():
        return None
    feeder = loop.feeder()
    return s.ids.of_loop(feeder) if feeder is not None and _is_data(feeder) else "loop"


def _drawn(s: Settler, place: Place, data: dict[str, Any]) -> Event | None:
    loop: Loop = data["loop"]
    if not _is_data(loop):
        return None
    index: int = data["index"]
    id_, of = s.ids.of_loop(loop), _of(s, loop)
    at = ("drawn", id(place), id_, index, of)
    found = s.same.get(at)
    if found is None:
        found = s.same[at] = Drawn(id_, index, of=of, place=place)
    return found


def _next(
    _s: Settler, place: Place, *, origin: Thing | None, index: int, loop: Loop | None
) -> Event | None:
    if loop is not None and loop.draws and _is_data(loop):
        return None  # the loop says it already: one piece per iteration
    name = origin.known_as if origin is not None else None
    return Drawn(name or "next()", index, place=place)


def _epoch_end(s: Settler, place: Place, *, loop: Loop, epoch: int, batches: int) -> Event | None:
    if not _is_data(loop):
        return None
    return EpochEnd(s.ids.of_loop(loop), epoch, batches, of=_of(s, loop), place=place)


def _forward(s: Settler, place: Place, data: dict[str, Any]) -> Event:
    net: Net = data["net"]
    training, sync = data["training"], data["sync"]
    at = ("forward", id(place), net, training, sync)
    found = s.same.get(at)
    if found is None:
        found = s.same[at] = Forward(s.ids.of(net), training, sync, place=place)
    return found


def _mode(s: Settler, place: Place, data: dict[str, Any]) -> Event:
    net: Net = data["net"]
    training = data["training"]
    at = ("mode", id(place), net, training)
    found = s.same.get(at)
    if found is None:
        found = s.same[at] = Mode(s.ids.of(net), training, place=place)
    return found


def _update(s: Settler, place: Place, *, scaler: Scaler) -> Event:
    return ScalerUpdate(s.ids.of(scaler), place=place)


def _kept(
    s: Settler,
    place: Place,
    *,
    tensor: Tensor,
    into: Value,
    born: int,
    loops: tuple[Loop, ...],
    name: str | None = None,
    owner: Scope | None = None,
) -> Event | None:
    """Say that a loss outlives its iteration, if it went backward and no sum with it did."""
    turning = (loop for loop in reversed(loops) if not loop.runs_once())
    loop = next((loop for loop in turning if loop.is_batches()), None)
    if loop is None or born > loop.start or not tensor.graph or tensor.nets == frozenset():
        return None
    if loop.kind != "loader" and not loop.steps:
        return None  # it is a window, and what it keeps is gone with the update
    if isinstance(into, ListValue) and loop in into.emptied:
        return None
    m = s.m
    if owner is not None and loop in owner.emptied.get(name or "", ()):
        return None  # what it is added to begins anew while the loop runs
    same = {tensor.ident, *tensor.chain}  # what it is, but for a factor
    if (m.backed | m.summed).isdisjoint(same) or goes_back(m, tensor, into):
        return None
    loss = f"loss#{getattr(tensor.made_at, 'lineno', 0)}"
    shown = name or getattr(into, "known_as", None)
    if loop.node not in s.renewed:
        s.renewed[loop.node] = renewed(loop.node)
    anew = shown in s.renewed[loop.node] or _ends_soon(loop, born)
    return LossKept(loss, into=shown, outlives=True, renewed=anew, place=place)


def goes_back(m: Machine, tensor: Tensor, into: Value) -> bool:
    """Say whether a loss is kept for a backward: that of the sum that it was added to, or of one
    that was made of a container.
    """
    if isinstance(into, Tensor):
        return into.ident in m.backed or into.ident in m.summed
    return not m.summed.isdisjoint({tensor.ident, *tensor.chain})


def _rebound(s: Settler, place: Place, *, name: str, was: Net, now: Net | None) -> Event:
    before = s.ids.of(was)
    after = None if now is None else s.ids.of(now)
    return Rebound(name, was=before, now=after, parameters=True, place=place)


def _called(_s: Settler, place: Place, *, api: str) -> Event:
    return Called(api, place=place)


def _opaque(s: Settler, place: Place, *, what: str, values: list[Value] | None) -> Event:
    held = tuple(s.ids.of(value) for value in values or () if isinstance(value, Optimizer))
    return Opaque(held or None, what, place=place)


def _ends_soon(loop: Loop, born: int) -> bool:
    """Say whether a loop has few turns, and what it adds to begins anew for it."""
    return loop.kind == "range" and loop.few and (loop.outer is None or born > loop.outer.start)


HANDLERS: dict[str, Callable[..., Event | None]] = {
    "next": _next,
    "epoch-end": _epoch_end,
    "scaler-update": _update,
    "kept": _kept,
    "rebound": _rebound,
    "called": _called,
    "opaque": _opaque,
}
"""What makes the event of a note, by its kind."""
REPEATING: dict[str, Callable[[Settler, Place, dict[str, Any]], Event | None]] = {
    "drawn": _drawn,
    "forward": _forward,
    "mode": _mode,
}
"""The same of those that come most often: they are given the data as they are."""
