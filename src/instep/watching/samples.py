"""What is measured in a job, as often as it costs next to nothing.

Nothing here changes a number of the user's, draws a random one, or waits for a device: what is
computed on a device is fetched at a later update.
"""

from __future__ import annotations

import math
import weakref
from collections import deque
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from instep.trace import Place
    from instep.watching.book import Book, Touched
    from instep.watching.gauges import Gauges
    from instep.watching.graph import Reading
    from instep.watching.series import Series

SHARE = 0.01
"""Of the job's time that measuring may take."""
_FIRST = 8
"""Updates at the beginning that are measured whatever it costs: mistakes show there."""
_FIRST_LOSSES = 512
"""Updates at the beginning whose losses are all read."""
_SLICE = 65_536
"""Elements of a weight whose change is measured."""
_SURE = 10
"""Updates after which a parameter that never had a gradient is told."""
_RATIOS = 32
"""Measured updates over which the ratio is taken: single ones mean nothing."""
_MOST_TOKENS = 64
_KEPT = 8
"""Graphs of earlier updates that are alive when it is said that they are kept."""
_MOST_NAMES = 5


class _Token:
    """Put into a graph, it lives as long as that graph."""

    __slots__ = ("__weakref__",)


class Sampler:
    """Measures losses, norms and updates."""

    def __init__(self, book: Book, series: Series, gauges: Gauges) -> None:
        self.book = book
        self.series = series
        self.gauges = gauges
        self.spent = 0.0
        self._weights: dict[str, tuple[Any, Tensor]] = {}
        self._looks = True  # at the window that is open
        self._waiting: list[tuple[str, str, Tensor, Any]] = []  # line, optimizer, value, event
        self._losses: list[tuple[Tensor, float]] = []
        self._tokens: list[tuple[int, Any]] = []
        self._norm: Any = None
        self._ratios: dict[str, deque[float]] = {}
        self._filled: dict[str, set[int]] = {}  # parameters that have had a gradient
        self._broken: dict[str, int] = {}
        self._foreign: dict[str, int] = {}

    def is_due(self, updates: int) -> bool:
        """Say whether there is time to measure."""
        return updates < _FIRST or self.spent < SHARE * self.series.now()

    def forget(self, name: str) -> None:
        """Drop what is known of an optimizer that has died."""
        for table in (self._weights, self._ratios, self._filled, self._broken):
            table.pop(name, None)

    # Backward

    def before_backward(self, root: Tensor, reading: Reading) -> None:
        """Look at a loss, and mark its graph."""
        if not self._looks:
            return
        factor = reading.factor
        if factor and root.numel() == 1:
            self._losses.append((root.detach(), factor))
        node = root.grad_fn
        if node is not None and len(self._tokens) < _MOST_TOKENS:
            token = _Token()
            kept: Any = node.metadata
            kept["instep"] = token
            self._tokens.append((sum(self.series.updates.values()), weakref.ref(token)))

    def after_backward(self, touched: Touched, place: Place | None) -> None:
        """Look at what the gradients went into."""
        if not touched.foreign or touched.foreign[0] in self._foreign:
            return
        size = 0
        for key in touched.keys:
            held = self.book.parameters.get(key)
            parameter = None if held is None else held.parameter
            if parameter is not None and held is not None and not held.optimizers:
                size += parameter.numel() * parameter.element_size()
        self._foreign[touched.foreign[0]] = size
        names = _listed(touched.foreign)
        self.gauges.show(
            "foreign-gradients", None, float(size), unit="bytes", subject=names, place=place
        )

    # Step

    def clipped(self, norm: Any) -> None:
        """Take the norm that a clip has computed."""
        self._norm = norm

    def before_step(self, optimizer: Optimizer, name: str) -> None:
        """Look at gradients and weights just before an update."""
        updates = self.series.updates.get(name, 0)
        if not self.is_due(updates):
            return
        started = perf_counter()
        every = [p for group in optimizer.param_groups for p in group["params"]]
        filled = [p for p in every if p.grad is not None]
        dense = [p for p in filled if not p.grad.is_sparse]
        if dense:
            norms = torch._foreach_norm([p.grad for p in dense])  # noqa: SLF001
            total = torch.linalg.vector_norm(torch.stack([n.float() for n in norms]))
            self._later("grad_norm", name, total)
            largest = max(dense, key=torch.Tensor.numel)
            weight = largest.detach().flatten()[:_SLICE].clone()
            self._weights[name] = (weakref.ref(largest), weight)
        self._missing(name, every, filled, updates)
        self.spent += perf_counter() - started

    def after_step(self, optimizer: Optimizer, name: str, place: Place | None) -> None:
        """Look at weights just after an update, and fetch what was measured before it."""
        updates = self.series.updates.get(name, 0)
        if not (self._looks or self._waiting):
            self._norm = None
            self._looks = self.is_due(updates)
            return
        started = perf_counter()
        kept = self._weights.pop(name, None)
        weight = None if kept is None else kept[0]()
        if kept is not None and weight is not None:
            change = weight.detach().flatten()[:_SLICE] - kept[1]
            size = torch.linalg.vector_norm(kept[1].float())
            ratio = torch.linalg.vector_norm(change.float()) / size.clamp_min(1e-30)
            self._later("update_ratio", name, ratio)
        if isinstance(self._norm, torch.Tensor):
            self._later("clip_norm", name, self._norm)
        self._norm = None
        rate = optimizer.param_groups[0].get("lr") if optimizer.param_groups else None
        if isinstance(rate, int | float):
            self.series.point("lr", float(rate), optimizer=name)
        self._mean_loss(name)
        self._fetch(place)
        self._graphs(place)
        self.spent += perf_counter() - started
        self._looks = updates < _FIRST_LOSSES or self.is_due(updates)

    def _missing(self, name: str, every: list[Any], filled: list[Any], updates: int) -> None:
        """Show how many parameters of an optimizer have never had a gradient."""
        seen = self._filled.setdefault(name, set())
        seen.update(map(id, filled))
        without = [p for p in every if p.requires_grad and id(p) not in seen]
        if not without or updates < _SURE:
            self.gauges.hide("gradients-missing", name)
            return
        held = (self.book.parameters.get(id(parameter)) for parameter in without)
        names = [h.name if h.model is None else f"{h.model}.{h.name}" for h in held if h]
        self.gauges.show(
            "gradients-missing",
            name,
            float(len(without)),
            unit="parameters",
            subject=_listed(names),
        )

    def _mean_loss(self, name: str) -> None:
        """Read the losses of a window."""
        losses, self._losses = self._losses, []
        if not losses:
            return
        if all(loss.device.type == "cpu" for loss, _ in losses):
            mean = sum(float(loss) / factor for loss, factor in losses) / len(losses)
            self.series.point("loss", mean, optimizer=name)
        else:
            values = [(loss.float() / factor).reshape(()) for loss, factor in losses]
            self._later("loss", name, torch.stack(values).mean())

    def _later(self, line: str, name: str, value: Tensor) -> None:
        """Have a number fetched when it is there: nobody waits for a device."""
        done = None
        if value.device.type != "cpu":
            there = torch.empty((), dtype=value.dtype, pin_memory=value.device.type == "cuda")
            value = there.copy_(value.detach(), non_blocking=True)
            done = torch.Event("cuda") if value.is_pinned() else None
            if done is not None:
                done.record()
        self._waiting.append((line, name, value, done))

    def _fetch(self, place: Place | None) -> None:
        waiting, self._waiting = self._waiting, []
        for line, owner, value, done in waiting:
            if done is not None and not done.query():
                self._waiting.append((line, owner, value, done))
                continue
            number = float(value)
            self.series.point(line, number, optimizer=owner)
            if line == "grad_norm" and not math.isfinite(number):
                self._broken[owner] = self._broken.get(owner, 0) + 1
                count = float(self._broken[owner])
                self.gauges.show("nonfinite-updates", owner, count, unit="updates", place=place)
            elif line == "update_ratio" and math.isfinite(number):
                self._ratio(owner, number, place)

    def _ratio(self, name: str, ratio: float, place: Place | None) -> None:
        last = self._ratios.setdefault(name, deque(maxlen=_RATIOS))
        last.append(ratio)
        if len(last) == _RATIOS:
            self.gauges.show("update-ratio", name, median(last), unit="relative", place=place)

    def _graphs(self, place: Place | None) -> None:
        """Count the graphs of earlier updates that are still alive."""
        if not self._tokens:
            return
        now = sum(self.series.updates.values())
        self._tokens = [(made, token) for made, token in self._tokens if token() is not None]
        old = sum(1 for made, _ in self._tokens if made < now - 2)
        if old >= _KEPT:
            self.gauges.show("graphs-kept", None, float(old), unit="graphs", place=place)


def _listed(names: Any) -> str:
    names = list(names)
    rest = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {rest} more" if rest > 0 else "")
