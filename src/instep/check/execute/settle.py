"""The trace of a finished path: values become ids, and what was open when it happened is decided."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from instep.check.execute import roles
from instep.check.execute.values import (
    Criterion,
    Loader,
    Mod,
    Net,
    Optimizer,
    Param,
    Scaler,
    Scheduler,
    Tensor,
    Thing,
    Unknown,
    overlap,
)
from instep.trace import (
    Assumed,
    Backward,
    Called,
    Clip,
    Created,
    Drawn,
    EpochEnd,
    Forward,
    GradEdited,
    GradRead,
    LossKept,
    Mode,
    Opaque,
    Rebound,
    ScalerUpdate,
    Schedule,
    Step,
    Trace,
    Unscale,
    Zero,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from instep.check.execute.journal import Loop, Note
    from instep.check.execute.machine import Machine
    from instep.trace import Event, Fact, Place


class _Later:
    """The place in a trace of a creation that is described when everything is known."""

    __slots__ = ("thing",)

    def __init__(self, thing: Thing) -> None:
        self.thing = thing


class Settler:
    """Turns the notes of one path into events."""

    def __init__(self, m: Machine) -> None:
        self.m = m
        self.ids: dict[int, str] = {}
        self.taken: set[str] = set()
        self.created: dict[str, Created] = {}
        self.now = 0
        self.born: dict[Optimizer, int] = {}
        self.gone: dict[Optimizer, int] = {}
        self.events: list[Event | _Later] = []
        self.optimizers: dict[Optimizer, None] = {}
        self.unsure = any(
            note.data["loop"].unsure for note in m.notes if note.kind in {"drawn", "epoch-end"}
        )
        self.keep: list[object] = []  # ids are by identity, so nothing may be collected
        self.handlers: dict[str, Callable[[Note, Place | None], Iterable[Event]]] = {
            "drawn": self._drawn,
            "next": self._next,
            "epoch-end": self._epoch_end,
            "backward": self._backward,
            "step": self._step,
            "zero": self._zero,
            "unscale": self._unscale,
            "clip": self._clip,
            "scaler-update": self._update,
            "schedule": self._schedule,
            "forward": self._forward,
            "mode": self._mode,
            "grad-read": self._grad_read,
            "grad-edited": self._grad_edited,
            "kept": self._kept,
            "rebound": self._rebound,
            "called": self._called,
            "opaque": self._opaque,
        }

    def trace(self) -> Trace:
        """Return the trace."""
        for at, note in enumerate(self.m.notes):
            self._collect(at, note)
        for self.now, note in enumerate(self.m.notes):
            if note.kind == "made":
                self.events.append(_Later(note.data["thing"]))
                continue
            handler = self.handlers.get(note.kind)
            if handler is not None:
                place = None
                if note.node is not None and note.module is not None:
                    place = note.module.place(note.node)
                self.events.extend(handler(note, place))
        facts: dict[str, Fact] = {"source": "check"}
        if self.m.managed is not None:
            facts["managed"] = self.m.managed
        head: list[Event] = [Created("job", "job", facts)]
        events = self._placed()
        head.extend(self.created.values())
        for assumption in self.m.decisions.assumed.values():
            place = assumption.module.place(assumption.node)
            head.append(Assumed(assumption.text, assumption.holds, place=place))
        return Trace([*head, *events])

    def _placed(self) -> list[Event]:
        """Put the creation of what was seen being made where it happened, and all else first."""
        events: list[Event] = []
        for event in self.events:
            if not isinstance(event, _Later):
                events.append(event)
            elif id(event.thing) in self.ids:
                created = self.created.pop(self.ids[id(event.thing)], None)
                if created is not None:
                    events.append(created)
        return events

    def _collect(self, at: int, note: Note) -> None:
        """Find every optimizer that the path knows, and from when to when there is it: one that
        nothing happens to any more when another one is made was replaced by it.
        """
        if note.kind == "made" and isinstance(note.data["thing"], Optimizer):
            made = note.data["thing"]
            for before in self.born:
                self.gone.setdefault(before, at)  # unless something still happens to it, see below
            self.born[made] = at
            return
        for value in note.data.values():
            for inner in value if isinstance(value, list) else (value,):
                if isinstance(inner, Optimizer):
                    self.optimizers.setdefault(inner)
                    self.gone.pop(inner, None)
                elif isinstance(inner, Scheduler) and inner.optimizer is not None:
                    self.optimizers.setdefault(inner.optimizer)

    def id_of(self, thing: Thing) -> str:
        """Return the id of a thing: its name in the source, and a number if that is taken."""
        found = self.ids.get(id(thing))
        if found is None:
            base = (thing.known_as or type(thing).__name__.lower()).replace("#", "")
            found, count = base, 1
            while found in self.taken:
                count += 1
                found = f"{base}#{count}"
            self.taken.add(found)
            self.ids[id(thing)] = found
            self.keep.append(thing)
            self._create(found, thing)
        return found

    def _create(self, id_: str, thing: Thing) -> None:
        facts: dict[str, Fact] = {}
        place = None
        if thing.node is not None and thing.module is not None:
            place = thing.module.place(thing.node)
        if isinstance(thing, Optimizer):
            facts = _known(type=_torch_type(thing), written=thing.kind is not None or None)
            self.created[id_] = Created(id_, "optimizer", facts, place=place)
            if thing.nets is not None:
                facts["models"] = tuple(self.id_of(net) for net in _ordered(thing.nets))
                self.created[id_] = Created(id_, "optimizer", facts, place=place)
        elif isinstance(thing, Scaler):
            self.created[id_] = Created(id_, "scaler", _known(enabled=thing.enabled), place=place)
        elif isinstance(thing, Scheduler):
            owner = None if thing.optimizer is None else self.id_of(thing.optimizer)
            unit = _unit(thing)
            facts = _known(type=thing.kind, optimizer=owner, unit=unit)
            self.created[id_] = Created(id_, "scheduler", facts, place=place)
        elif isinstance(thing, Net):
            facts = _known(
                type=thing.kind if thing.written else None,
                batchnorm=thing.batchnorm or None,
                distributed=thing.spread_over(),
                frozen=thing.frozen or None,
                trainable=thing.trainable,
                held=self._is_held(thing) or None,
                written=thing.written or None,
                part_of=None if thing.part_of is None else self.id_of(thing.part_of),
            )
            self.created[id_] = Created(id_, "model", facts, place=place)

    def _is_held(self, net: Net) -> bool:
        own = frozenset({net})
        every = (*self.optimizers, *self.born)
        return any(o.nets is not None and overlap(o.nets, own) for o in every)

    # Whom something happens to

    def owners(self, nets: frozenset[Net] | None) -> tuple[str, ...] | None:
        """Return the optimizers that hold parameters of these models; None if not known."""
        every = [
            optimizer
            for optimizer in self.optimizers
            if self.born.get(optimizer, 0) <= self.now
            and self.now < self.gone.get(optimizer, len(self.m.notes))
        ]
        if not every:
            return ()
        if nets is None:
            return (self.id_of(every[0]),) if len(every) == 1 else None
        sure = [o for o in every if o.nets is not None and overlap(o.nets, nets)]
        unsure = [o for o in every if o.nets is None]
        if not unsure:
            return tuple(self.id_of(optimizer) for optimizer in sure)
        if sure:
            # Another one may hold some of the same parameters, though hardly anybody does that.
            named = {net for net in nets if any(overlap(o.nets or frozenset(), frozenset({net})) for o in sure)}
            return tuple(self.id_of(o) for o in sure) if named == set(nets) else None
        return (self.id_of(unsure[0]),) if len(every) == 1 else None

    def _of_param(self, param: Param) -> tuple[str, ...] | None:
        if param.optimizer is not None:
            return (self.id_of(param.optimizer),)
        return self.owners(param.nets)

    def _owned(self, note: Note) -> tuple[str, ...] | None:
        data = note.data
        if data.get("optimizer") is not None:
            return (self.id_of(data["optimizer"]),)
        if data.get("param") is not None:
            return self._of_param(data["param"])
        return self.owners(data.get("nets"))

    # Events

    def loop_id(self, loop: Loop) -> str:
        """Return the id of what a loop goes through."""
        at = id(loop.node)
        found = self.ids.get(at)
        if found is None:
            base = loop.name or loop.text or "loop"
            origin = loop.origin
            if origin is not None and origin.known_as and loop.kind == "loader":
                base = origin.known_as
            base = base.replace("#", "")
            found, count = base, 1
            while found in self.taken:
                count += 1
                found = f"{base}#{count}"
            self.taken.add(found)
            self.ids[at] = found
            facts: dict[str, Fact] = {"type": loop.text}
            if loop.unsure:
                facts["bounded"] = True
            if loop.is_batches():
                if loop.literal and loop.length is not None:
                    facts["length"] = loop.length
            else:
                facts["pieces"] = True
                if loop.patches:
                    facts["patches"] = True
                if loop.literal and loop.length is not None:
                    facts["length"] = loop.length
            self.created[found] = Created(found, "loader", facts)
        return found

    def _is_data(self, loop: Loop) -> bool:
        """Say whether a loop draws anything: one that goes round another loop over data does not,
        and one without a forward of its own goes over parts of a loss.
        """
        if loop.kind in {"range", "while"} and loop.nested:
            return False
        if loop.draws and loop.kind in {"range", "while"}:
            return not loop.is_batches()
        return not (not loop.is_batches() and loop.forwards == 0 and not loop.draws)

    def _drawn(self, note: Note, place: Place | None) -> Iterable[Event]:
        loop: Loop = note.data["loop"]
        if self._is_data(loop):
            yield Drawn(self.loop_id(loop), note.data["index"], of=self._of(loop), place=place)

    def _of(self, loop: Loop) -> str | None:
        if loop.is_batches():
            return None
        feeder = loop.feeder()
        if feeder is None:
            return "loop"
        return self.loop_id(feeder) if self._is_data(feeder) else "loop"

    def _next(self, note: Note, place: Place | None) -> Iterable[Event]:
        loop: Loop | None = note.data["loop"]
        if loop is not None and loop.draws and self._is_data(loop):
            return  # the loop says it already: one piece per iteration
        origin = note.data["origin"]
        name = origin.known_as if origin is not None else None
        yield Drawn(name or "next()", note.data["index"], place=place)

    def _epoch_end(self, note: Note, place: Place | None) -> Iterable[Event]:
        loop: Loop = note.data["loop"]
        if self._is_data(loop):
            data = note.data
            yield EpochEnd(self.loop_id(loop), data["epoch"], data["batches"], of=self._of(loop), place=place)

    def _backward(self, note: Note, place: Place | None) -> Iterable[Event]:
        tensor: Tensor = note.data["tensor"]
        optimizers = None if note.data["limited"] else self.owners(tensor.nets)
        if not tensor.graph and tensor.nets == frozenset():
            optimizers = None if len(self.optimizers) > 1 else self.owners(None)
        parts = self._parts(tensor, note.data["part"])
        factor: float | None = None
        if parts is not None:
            factor = 1.0
            for part in parts:
                factor *= part
        scaler = tensor.scaled
        if scaler is not None:
            self.id_of(scaler)
        yield Backward(
            optimizers,
            loss=self._loss(tensor, note),
            factor=factor,
            parts=tuple(parts or ()),
            reduction=tensor.reduction if tensor.reduction in {"mean", "sum"} else None,  # type: ignore[arg-type]
            scaled=scaler is not None,
            models=None if tensor.nets is None else tuple(self.id_of(n) for n in _ordered(tensor.nets)),
            place=place,
        )

    def _parts(self, tensor: Tensor, extra: Any) -> list[float] | None:
        if tensor.parts is None:
            return None
        found: list[float] = []
        parts = list(tensor.parts)
        if extra is not None:
            parts.append((extra, -1))
        for part in parts:
            value = self._number(part)
            if value is None:
                return None
            found.append(value)
        return found

    def _number(self, part: Any) -> float | None:
        """Return a multiplier as a number; an unknown one has one only if it counts something."""
        if isinstance(part, int | float):
            return float(part)
        value, power = part
        if isinstance(value, Unknown):
            number: float | None = value.count
        elif isinstance(value, int | float):
            number = float(value)
        else:
            number = None
        if not number:
            return None
        return float(number) if power == 1 else 1.0 / number

    def _loss(self, tensor: Tensor, note: Note) -> str:
        node = tensor.made_at if tensor.made_at is not None else note.node
        line = getattr(node, "lineno", 0)
        things = "".join(f".{index}" for _, index in note.data["things"])
        name = "loss"
        if isinstance(note.node, ast.Call) and isinstance(note.node.func, ast.Attribute):
            receiver = note.node.func.value
            if isinstance(receiver, ast.Call) and receiver.args:
                receiver = receiver.args[0]
            elif note.node.args:
                receiver = note.node.args[0]
            if isinstance(receiver, ast.Name | ast.Attribute):
                name = ast.unparse(receiver)
        id_ = f"{name}#{line}{things}"
        if id_ not in self.created:
            facts = _known(
                reduction=tensor.reduction,
                ragged=tensor.ragged,
                coupled=tensor.coupled,
                type=tensor.kind,
            )
            self.created[id_] = Created(id_, "loss", facts)
        return id_

    def _step(self, note: Note, place: Place | None) -> Iterable[Event]:
        data = note.data
        scaler: Scaler | None = data["scaler"]
        gate = data["gate"]
        unsure = self.unsure
        every = gate[0] if gate is not None and not unsure else None
        yield Step(
            self.id_of(data["optimizer"]),
            scaler=None if scaler is None else self.id_of(scaler),
            closure=data["closure"],
            every=every,
            every_is_literal=bool(every is not None and gate[1]),
            place=place,
        )

    def _zero(self, note: Note, place: Place | None) -> Iterable[Event]:
        data = note.data
        net: Net | None = data.get("net")
        param: Param | None = data.get("param")
        complete = True
        target = None
        if net is not None:
            optimizers = self.owners(frozenset({net}))
            target = self.id_of(net)
            complete = self._covers(optimizers, frozenset({net}))
        elif param is not None:
            optimizers = self._of_param(param)
            complete = param.complete and self._covers(optimizers, param.nets)
        else:
            optimizers = (self.id_of(data["optimizer"]),)
        yield Zero(optimizers, target=target, set_to_none=data["set_to_none"], complete=complete, place=place)

    def _covers(self, optimizers: tuple[str, ...] | None, nets: frozenset[Net] | None) -> bool:
        """Say whether clearing some models clears everything that these optimizers hold."""
        if nets is None or optimizers is None:
            return True
        for optimizer in self.optimizers:
            if self.id_of(optimizer) in optimizers and optimizer.nets is not None:
                cleared = set().union(*(net.inside() for net in nets))
                if any(not (net.lineage() & nets or net in cleared) for net in optimizer.nets):
                    return False
        return True

    def _unscale(self, note: Note, place: Place | None) -> Iterable[Event]:
        scaler = self.id_of(note.data["scaler"])
        yield Unscale(self.id_of(note.data["optimizer"]), scaler=scaler, place=place)

    def _clip(self, note: Note, place: Place | None) -> Iterable[Event]:
        limit = note.data.get("limit")
        yield Clip(
            self._owned(note),
            by=note.data["by"],
            limit=float(limit) if isinstance(limit, int | float) else None,
            place=place,
        )

    def _update(self, note: Note, place: Place | None) -> Iterable[Event]:
        yield ScalerUpdate(self.id_of(note.data["scaler"]), place=place)

    def _schedule(self, note: Note, place: Place | None) -> Iterable[Event]:
        scheduler: Scheduler = note.data["scheduler"]
        owner = scheduler.optimizer
        if owner is None and len(self.optimizers) == 1:
            owner = next(iter(self.optimizers))
        yield Schedule(
            None if owner is None else self.id_of(owner),
            scheduler=self.id_of(scheduler),
            unit=_unit(scheduler),
            explicit=note.data["explicit"] or note.data["update"],
            place=place,
        )

    def _forward(self, note: Note, place: Place | None) -> Iterable[Event]:
        data = note.data
        yield Forward(self.id_of(data["net"]), data["training"], data["sync"], place=place)

    def _mode(self, note: Note, place: Place | None) -> Iterable[Event]:
        yield Mode(self.id_of(note.data["net"]), note.data["training"], place=place)

    def _grad_read(self, note: Note, place: Place | None) -> Iterable[Event]:
        param: Param = note.data["param"]
        name = None
        if param.nets and len(param.nets) == 1 and next(iter(param.nets)).frozen:
            name = f"{self.id_of(next(iter(param.nets)))}.*"
        yield GradRead(self._of_param(param), parameter=name, guarded=note.data["guarded"], place=place)

    def _grad_edited(self, note: Note, place: Place | None) -> Iterable[Event]:
        factor = note.data["factor"]
        value = None if factor is None else self._number(factor)
        param: Param = note.data["param"]
        yield GradEdited(self._of_param(param), factor=value, place=place)

    def _kept(self, note: Note, place: Place | None) -> Iterable[Event]:
        data = note.data
        tensor: Tensor = data["tensor"]
        into = data["into"]
        if not tensor.graph or not (tensor.nets is None or tensor.nets):
            return
        loop = next((loop for loop in reversed(data["loops"]) if loop.is_batches()), None)
        if loop is None or data["born"] > loop.start or self._is_reset(data, loop):
            return
        backed = tensor.ident in self.m.backed and tensor.ident not in self.m.summed
        both = self.m.backed | self.m.summed
        whole = isinstance(into, Tensor) and into.ident in both
        if backed and not whole:
            name = data.get("name") or getattr(into, "known_as", None)
            yield LossKept(self._kept_name(tensor), into=name, outlives=True, place=place)

    def _is_reset(self, data: dict[str, Any], loop: Loop) -> bool:
        """Say whether what a loss is added to begins anew while the loop runs."""
        resets = self.m.resets.get((data.get("owner", 0), data.get("name", "")), ())
        return any(serial > loop.start for serial in resets)

    def _kept_name(self, tensor: Tensor) -> str:
        return f"loss#{getattr(tensor.made_at, 'lineno', 0)}"

    def _rebound(self, note: Note, place: Place | None) -> Iterable[Event]:
        data = note.data
        now: Net | None = data["now"]
        yield Rebound(
            data["name"],
            was=self.id_of(data["was"]),
            now=None if now is None else self.id_of(now),
            parameters=True,
            place=place,
        )

    def _called(self, note: Note, place: Place | None) -> Iterable[Event]:
        yield Called(note.data["api"], place=place)

    def _opaque(self, note: Note, place: Place | None) -> Iterable[Event]:
        values = note.data["values"]
        held = None
        if values is not None:
            held = tuple(self.id_of(v) for v in values if isinstance(v, Optimizer))
        yield Opaque(held or None, note.data["what"], place=place)


def _known(**facts: Any) -> dict[str, Fact]:
    return {name: fact for name, fact in facts.items() if fact is not None}


def _torch_type(optimizer: Optimizer) -> str | None:
    if optimizer.kind is None:
        return None
    return f"torch.optim.{optimizer.kind}" if optimizer.torch else optimizer.kind


def _unit(scheduler: Scheduler) -> Any:
    if scheduler.kind is not None and "Plateau" in scheduler.kind:
        return "metric"
    if scheduler.known_as is not None and "plateau" in scheduler.known_as.lower():
        return "metric"
    return "update" if scheduler.kind == "OneCycleLR" else None


def _ordered(nets: frozenset[Net]) -> list[Net]:
    return sorted(nets, key=lambda net: str(net.known_as))


__all__ = ["Criterion", "Loader", "Mod", "Settler", "roles"]
