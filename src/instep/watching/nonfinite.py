"""Updates with gradients that are not finite: told when the weights show that they were made.

A gradient alone proves nothing. A hook in front of the step may clean it, and an optimizer of the
user's own may look at it and not step. What is NaN after an update has taken it.
"""

from __future__ import annotations

import math
import weakref
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import torch

from instep.watching.later import Later
from instep.watching.unreached import listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from torch import Tensor
    from torch.optim import Optimizer

    from instep.trace import Place
    from instep.watching.book import Book
    from instep.watching.gauges import Gauges

_PLAIN = frozenset({torch.nn.Parameter, torch.Tensor})
"""Kinds of parameters that are all here."""
_ALARMS = 40
"""Losses that are not finite and after each of which the next update is looked at; then ever more
seldom: a loss may be infinite where its gradient is not."""
_PATIENCE = 1.0
"""Seconds that the end of a job waits for what a device has to say of the weights."""


class _Sizes:
    """The largest number of each of some parameters: it is finite if all of them are."""

    def __init__(self, parameters: Iterable[Any]) -> None:
        found: dict[torch.device, tuple[list[Any], list[Tensor]]] = {}
        for parameter in filter(_is_looked_at, parameters):
            weak, sizes = found.setdefault(parameter.device, ([], []))
            weak.append(weakref.ref(parameter))
            size = torch.linalg.vector_norm(parameter.detach(), math.inf)  # makes no copy
            sizes.append(size.float())
        self._parts = [(weak, Later(torch.stack(sizes))) for weak, sizes in found.values()]

    @property
    def is_here(self) -> bool:
        return all(sizes.is_here for _, sizes in self._parts)

    def __iter__(self) -> Iterator[tuple[Any, float]]:
        for weak, sizes in self._parts:
            for one, size in zip(weak, sizes.numbers, strict=True):
                parameter = one()
                if parameter is not None:
                    yield parameter, size


class _Owner:
    """What is known of one optimizer."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.weak = weakref.ref(optimizer)
        self.seen: list[int] = []  # the parameters of the latest update that was looked at
        self.met: set[int] = set()
        self.first: list[_Sizes] = []  # of its parameters when they were met
        self.suspected = 0  # updates whose gradients were not finite, until the weights are asked
        self.asked: list[tuple[int, _Sizes]] = []
        self.updates = 0  # of those: they were made
        self.alarms = 0
        self.place: Place | None = None

    def lost(self, sizes: _Sizes) -> list[Any]:
        """Return the parameters that are not finite any more.

        What is infinite from the beginning on may be meant: a transition that is forbidden.
        """
        began = {
            id(parameter)
            for part in self.first
            if part.is_here
            for parameter, size in part
            if math.isfinite(size)
        }
        return [
            parameter
            for parameter, size in sizes
            if math.isnan(size) or (math.isinf(size) and id(parameter) in began)
        ]


class Nonfinite:
    """Counts updates that were made with gradients that are not finite."""

    def __init__(self, book: Book, gauges: Gauges) -> None:
        self._book = book
        self._gauges = gauges
        self._owners: dict[str, _Owner] = {}
        self.due: set[str] = set()
        """Optimizers whose next update is to be looked at, whatever it costs."""
        self.whole: set[str] = set()
        """Those of which every update was looked at."""
        self.may_ask = True
        """Devices answer: the job has not ended with an error."""

    def forget(self, name: str) -> None:
        """Drop what is known of an optimizer that has died."""
        self._owners.pop(name, None)
        self.due.discard(name)
        self.whole.discard(name)

    def alarm(self, name: str) -> None:
        """Take note of a loss that is not finite."""
        owner = self._owners.get(name)
        if owner is not None:
            owner.alarms = count = owner.alarms + 1
            if count <= _ALARMS or count & (count - 1) == 0:
                self.due.add(name)
            else:
                self.due.discard(name)

    def skipped(self, name: str) -> None:
        """Take note of an update that nobody has looked at."""
        self.whole.discard(name)

    def before_step(self, optimizer: Optimizer, name: str, filled: Sequence[Any]) -> None:
        """Meet parameters that have gradients."""
        owner = self._owners.get(name)
        if owner is None or owner.weak() is not optimizer:
            owner = self._owners[name] = _Owner(optimizer)
            self.whole.add(name)
        self.due.discard(name)
        keys = list(map(id, filled))
        if keys == owner.seen:  # nearly always
            return
        owner.seen = keys
        new = [parameter for parameter in filled if id(parameter) not in owner.met]
        if new:
            owner.met.update(map(id, new))
            owner.first.append(_Sizes(new))

    def suspected(self, name: str) -> None:
        """Take note of gradients that were not finite just before an update."""
        owner = self._owners.get(name)
        if owner is not None:
            owner.suspected += 1

    def after_step(self, name: str, place: Place | None) -> None:
        """Ask the weights whether such updates were made, and tell it when they answer."""
        owner = self._owners.get(name)
        if owner is None:
            return
        owner.place = place
        optimizer = owner.weak()
        if owner.suspected and optimizer is not None:
            owner.asked.append((owner.suspected, _Sizes(_held(optimizer))))
            owner.suspected = 0
        if owner.asked:
            self._take(name, owner)

    def _take(self, name: str, owner: _Owner) -> None:
        while owner.asked and owner.asked[0][1].is_here:
            count, sizes = owner.asked.pop(0)
            if not owner.lost(sizes):
                continue
            owner.updates += count
            unit = "updates" if name in self.whole else "updates at least"
            self._gauges.show(
                "nonfinite-updates", name, float(owner.updates), unit=unit, place=owner.place
            )

    def close(self) -> None:
        """Look at the weights that the job leaves: most of its updates were not looked at."""
        ends = monotonic() + _PATIENCE
        for name, owner in self._owners.items():
            optimizer = owner.weak()
            held = [] if optimizer is None else _held(optimizer)
            if not self.may_ask:
                # After an error a device may not answer, and end with another one.
                held = [parameter for parameter in held if parameter.device.type == "cpu"]
            elif owner.suspected:
                owner.asked.append((owner.suspected, _Sizes(held)))
            sizes = _Sizes(held)
            while not sizes.is_here and monotonic() < ends:
                sleep(0.001)
            if not sizes.is_here:
                continue
            if self.may_ask:
                self._take(name, owner)
            lost = owner.lost(sizes)
            if lost and not owner.updates:
                labels = [self._book.parameters.get(id(parameter)) for parameter in lost]
                self._gauges.show(
                    "nonfinite-weights",
                    name,
                    float(len(lost)),
                    unit="parameters",
                    subject=listed(one.label for one in labels if one is not None),
                    place=owner.place,
                )


def _held(optimizer: Optimizer) -> list[Any]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _is_looked_at(parameter: Any) -> bool:
    return (
        type(parameter) in _PLAIN
        and parameter.layout is torch.strided
        and parameter.numel() > 0
        and (parameter.is_floating_point() or parameter.is_complex())
        and parameter.dtype.itemsize > 1  # of eight bits: nobody updates them in place
    )
