"""Ids: the names that things have in a trace, and the facts about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from instep.check.execute import layers, moded
from instep.check.execute.levels import MOST
from instep.check.execute.things import Net, Optimizer, Scaler, Scheduler
from instep.trace import Created

if TYPE_CHECKING:
    from collections.abc import Callable

    from instep.check.execute.journal import Loop
    from instep.check.execute.tensors import Tensor
    from instep.check.execute.values import Thing
    from instep.trace import Fact


class Ids:
    """Gives everything its id: its name in the source, and a number if that is taken."""

    def __init__(self, is_held: Callable[[Net], bool]) -> None:
        self.created: dict[str, Created] = {}
        self._is_held = is_held  # by an optimizer of the path
        self._ids: dict[object, str] = {}
        self._of_all: dict[frozenset[Net], tuple[str, ...]] = {}
        self._taken: set[str] = set()
        self._level = 0  # models inside models that are being described

    def known(self, thing: Thing) -> str | None:
        """Return the id of a thing that has one already."""
        return self._ids.get(thing)

    def of(self, thing: Thing) -> str:
        """Return the id of a thing; the first time, describe it."""
        found = self._ids.get(thing)
        if found is None:
            found = self._name(thing, thing.known_as or type(thing).__name__.lower())
            self._create(found, thing)
        return found

    def of_all(self, nets: frozenset[Net]) -> tuple[str, ...]:
        """Return the ids of some models, in an order that is always the same."""
        found = self._of_all.get(nets)
        if found is None:
            ordered = sorted(nets, key=lambda net: (str(net.known_as), net.serial))
            found = self._of_all[nets] = tuple(self.of(net) for net in ordered)
        return found

    def _name(self, thing: object, base: str) -> str:
        base = base.replace("#", "")
        found, count = base, 1
        while found in self._taken:
            count += 1
            found = f"{base}#{count}"
        self._taken.add(found)
        self._ids[thing] = found
        return found

    def _create(self, id_: str, thing: Thing) -> None:
        place = None
        if thing.node is not None and thing.module is not None:
            place = thing.module.place(thing.node)
        role: Literal["optimizer", "scaler", "scheduler", "model"]
        match thing:
            case Optimizer():
                role = "optimizer"
                # Its models may be described by it, so it comes before them.
                self.created[id_] = Created(id_, role, {}, place=place)
                facts = known(
                    type=_type(thing),
                    written=thing.kind is not None or None,
                    models=None if thing.nets is None else self.of_all(thing.nets),
                )
            case Scaler():
                role, facts = "scaler", known(enabled=thing.enabled, asked=thing.asked or None)
            case Scheduler():
                owner = None if thing.optimizer is None else self.of(thing.optimizer)
                role = "scheduler"
                facts = known(
                    type=thing.kind,
                    optimizer=owner,
                    unit=unit_of(thing),
                    horizon=thing.horizon,
                    skippable=thing.skippable or None,
                )
            case Net():
                self._level += 1
                if self._level > MOST:
                    raise RecursionError
                role, facts = "model", self._about(thing)
                self._level -= 1
            case _:
                return
        self.created[id_] = Created(id_, role, facts, place=place)

    def _about(self, net: Net) -> dict[str, Fact]:
        return known(
            type=net.kind if net.written else None,
            batchnorm=net.batchnorm or None,
            moded=(net.evaluated and moded.has_mode(net)) or None,
            distributed=net.spread_over(),
            frozen=net.frozen or None,
            trainable=layers.may_train(net)
            if net.known_as
            else None,  # what has no name is a passing thing
            held=self._is_held(net) or None,
            loaded=net.loaded or None,
            written=net.written or None,
            part_of=None if net.part_of is None else self.of(net.part_of),
        )

    def of_loop(self, loop: Loop) -> str:
        """Return the id of what a loop goes through."""
        found = self._ids.get(loop.node)
        if found is None:
            base = loop.name or loop.text or "loop"
            if loop.origin is not None and loop.origin.known_as and loop.kind == "loader":
                base = loop.origin.known_as
            found = self._name(loop.node, base)
            pieces = not loop.is_batches()
            facts = known(
                type=loop.text,
                bounded=loop.unsure or (loop.limited and loop.outer is None) or None,
                repeated=(not pieces and loop.is_repeated()) or None,
                pieces=pieces or None,
                patches=(pieces and loop.patches) or None,
                shard=(pieces and loop.patches and loop.may_be_of_shard()) or None,
                again=(pieces and loop.comes_again()) or None,
                length=loop.length if loop.literal else None,
                length_written=loop.written,
            )
            self.created[found] = Created(found, "loader", facts)
        return found

    def of_loss(self, tensor: Tensor, name: str, at: str) -> str:
        """Return the id of a loss: its name, and where it was made."""
        found = f"{name}#{at}"
        if found not in self.created:
            facts = known(
                reduction="sum" if tensor.itemwise else tensor.reduction,
                returned=(tensor.raw and tensor.reduction is None) or None,
                ragged=tensor.ragged,
                coupled=tensor.coupled,
                window=tensor.window or None,
                again=tensor.again,
                type=tensor.kind,
            )
            self.created[found] = Created(found, "loss", facts)
        return found


def known(**facts: Any) -> dict[str, Fact]:
    """Return the facts that are known.

    >>> known(type="Adam", models=None)
    {'type': 'Adam'}
    """
    return {name: fact for name, fact in facts.items() if fact is not None}


def _type(optimizer: Optimizer) -> str | None:
    if optimizer.kind is None:
        return None
    return f"torch.optim.{optimizer.kind}" if optimizer.torch else optimizer.kind


def unit_of(scheduler: Scheduler) -> Literal["metric", "update"] | None:
    """Return what a scheduler is stepped for, where its class says so."""
    if "plateau" in f"{scheduler.kind} {scheduler.known_as}".lower():
        return "metric"
    return "update" if scheduler.kind == "OneCycleLR" else None


def reduction_of(tensor: Tensor) -> Literal["mean", "sum"] | None:
    """Return what a loss is over its items, where that is known."""
    if tensor.itemwise or tensor.reduction == "sum":
        return "sum"
    return "mean" if tensor.reduction == "mean" else None
