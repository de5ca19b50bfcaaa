"""Notes of what happens to gradients and parameters, made into events."""

from __future__ import annotations

import ast
import math
from typing import TYPE_CHECKING, Any

from instep.check.execute import settle
from instep.check.execute.ids import reduction_of, unit_of
from instep.trace import Backward, Clip, GradEdited, GradRead, Schedule, Step, Unscale, Zero

if TYPE_CHECKING:
    from collections.abc import Callable

    from instep.check.execute.settle import Settler
    from instep.check.execute.tensors import Tensor
    from instep.check.execute.things import Net, Optimizer, Param, Scaler, Scheduler
    from instep.check.execute.values import Value
    from instep.trace import Event, Place
    from instep.trace.updates import Written


def _backward(
    s: Settler,
    place: Place,
    *,
    tensor: Tensor,
    part: Value,
    limited: bool,
    call: ast.AST,
    things: tuple[tuple[int, int], ...],
) -> Event:
    optimizers = None if limited else s.owning(tensor.nets)
    if not tensor.graph and tensor.nets == frozenset():
        optimizers = None if len(s.owners.optimizers) > 1 else s.owning(None)
    parts = _parts(tensor, part)
    if tensor.scaled is not None:
        s.ids.of(tensor.scaled)
    line = getattr(tensor.made_at if tensor.made_at is not None else call, "lineno", 0)
    at = f"{line}{''.join(f'.{index}' for _, index in things)}" if things else str(line)
    return Backward(
        optimizers,
        loss=s.ids.of_loss(tensor, _spelled(s, call), at),
        factor=None if parts is None else math.prod(parts, start=1.0),
        parts=tuple(parts or ()),
        reduction=reduction_of(tensor),
        scaled=tensor.scaled is not None,
        models=None if tensor.nets is None else s.ids.of_all(tensor.nets),
        place=place,
    )


def _parts(tensor: Tensor, extra: Value) -> list[float] | None:
    if tensor.parts is None:
        return None
    parts = tensor.parts if extra is None else (*tensor.parts, (extra, -1))
    if not parts:
        return []
    known = [settle.multiplier(part) for part in parts]
    found = [part for part in known if part is not None]
    return found if len(found) == len(known) else None


def _spelled(s: Settler, call: ast.AST) -> str:
    """Return what the source calls a loss: `loss.backward()`, `scaler.scale(loss).backward()`."""
    if call not in s.spelled:
        s.spelled[call] = _loss_of(call)
    return s.spelled[call]


def _loss_of(call: ast.AST) -> str:
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        receiver = call.func.value
        if isinstance(receiver, ast.Call) and receiver.args:
            receiver = receiver.args[0]
        elif call.args:
            receiver = call.args[0]
        if isinstance(receiver, ast.Name | ast.Attribute):
            return ast.unparse(receiver)
    return "loss"


def _step(
    s: Settler,
    place: Place,
    *,
    optimizer: Optimizer,
    scaler: Scaler | None,
    closure: bool,
    gate: tuple[int, Written] | None,
) -> Event:
    every, written = gate if gate is not None else (None, None)
    return Step(
        s.ids.of(optimizer),
        scaler=None if scaler is None else s.ids.of(scaler),
        closure=closure,
        every=None if s.unsure else every,
        every_written=written,
        place=place,
    )


def _zero(
    s: Settler,
    place: Place,
    *,
    set_to_none: bool | None,
    optimizer: Optimizer | None = None,
    net: Net | None = None,
    param: Param | None = None,
) -> Event:
    if optimizer is not None:
        return Zero((s.ids.of(optimizer),), set_to_none=set_to_none, place=place)
    target = None
    complete = True
    if net is not None:
        nets: frozenset[Net] | None = frozenset({net})
        held = s.owning(nets)
        target = s.ids.of(net)
    else:
        assert param is not None  # noqa: S101  # a note has one of the three
        nets, complete = param.nets, param.complete
        held = s.owning_param(param)
    owners = None if held is None else [o for o in s.owners.optimizers if s.ids.of(o) in held]
    return Zero(
        held,
        target=target,
        set_to_none=set_to_none,
        complete=complete and s.owners.covers(owners, nets),
        place=place,
    )


def _unscale(s: Settler, place: Place, *, optimizer: Optimizer, scaler: Scaler) -> Event:
    id_ = s.ids.of(scaler)
    return Unscale(s.ids.of(optimizer), scaler=id_, place=place)


def _clip(
    s: Settler,
    place: Place,
    *,
    by: Any,
    limit: float | None,
    nets: frozenset[Net] | None = None,
    optimizer: Optimizer | None = None,
    param: Param | None = None,
    scaled: bool = False,
) -> Event:
    if optimizer is not None:
        held: settle.Held = (s.ids.of(optimizer),)
    else:
        held = s.owning(nets) if param is None else s.owning_param(param)
    most = None if limit is None else float(limit)
    return Clip(held, by=by, limit=most, scaled=scaled or None, place=place)


def _schedule(s: Settler, place: Place, *, scheduler: Scheduler, explicit: bool) -> Event:
    owner = scheduler.optimizer
    if owner is None and len(s.owners.optimizers) == 1:
        owner = next(iter(s.owners.optimizers))
    return Schedule(
        None if owner is None else s.ids.of(owner),
        scheduler=s.ids.of(scheduler),
        unit=unit_of(scheduler),
        explicit=explicit,
        place=place,
    )


def _grad_read(s: Settler, place: Place, *, param: Param, guarded: bool, frozen: bool) -> Event:
    name = None
    if param.nets is not None and len(param.nets) == 1:
        (net,) = param.nets
        name = f"{s.ids.of(net)}.*" if net.frozen and frozen else None
    return GradRead(s.owning_param(param), parameter=name, guarded=guarded, place=place)


def _grad_edited(s: Settler, place: Place, *, param: Param, factor: Value) -> Event:
    value = None if factor is None else settle.multiplier(factor)
    return GradEdited(s.owning_param(param), factor=value, place=place)


HANDLERS: dict[str, Callable[..., Event | None]] = {
    "backward": _backward,
    "step": _step,
    "zero": _zero,
    "unscale": _unscale,
    "clip": _clip,
    "schedule": _schedule,
    "grad-read": _grad_read,
    "grad-edited": _grad_edited,
}
"""What makes the event of a note, by its kind."""
