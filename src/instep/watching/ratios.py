"""How much an update changes a weight: measured for the largest one of each optimizer."""

from __future__ import annotations

import math
import weakref
from collections import deque
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from instep.watching.later import Later, sliced

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor
    from torch.optim import Optimizer

    from instep.trace import Place
    from instep.watching.book import Book
    from instep.watching.gauges import Gauges
    from instep.watching.series import Series

_SLICE = 65_536
"""Elements of a weight whose change is measured."""
_RATIOS = 32
"""Measured updates over which the ratio is taken: single ones mean nothing."""
_VANISHING = 1e-6
"""A ratio that is told only where no schedule explains it, and if it was never larger."""
_LOW = 0.01
"""Of the highest rate, that of a schedule or of another group or optimizer: below that updates say
nothing."""
_FELT, _DRIVEN = 1e-4, 1e-3
"""Least gradient, and least change by a rate of 1, over a weight, for its rate to be what is small.
Where both are smaller there is nothing left to learn, or never was."""
_BLOWN, _WORSE = 10.0, 10.0
"""An update over a weight's first size, and a loss over the first one, from which on both say that
weights have exploded: such weights are large ever after, and updates small beside them. Either
alone is no mistake: weights may begin next to nothing, and losses of games may grow."""
_TINY = 1e-30
_LOSSES = 16
"""Latest losses that are compared with the first."""


class _Weight(NamedTuple):
    weak: Any
    before: Tensor
    gradient: Tensor | None
    """How large all of it is; None if a loss scale is still in it."""
    rate: float | None


class _Change(NamedTuple):
    optimizer: str
    label: str | None
    rate: float | None
    place: Place | None
    sizes: Later
    """Of the change, of the weight before, of what that was first, and of its gradient."""
    part: float
    """Of the weight that all but the gradient are sizes of."""


class _Latest(NamedTuple):
    ratio: float
    rate: float | None
    of_first: float
    gradient: float


class Ratios:
    """Measures changes of weights, and tells the usual one of the latest updates."""

    def __init__(self, book: Book, series: Series, gauges: Gauges) -> None:
        self._book = book
        self._series = series
        self._gauges = gauges
        self._weights: dict[str, _Weight] = {}
        self._waiting: deque[_Change] = deque()
        self._latest: dict[str, deque[_Latest]] = {}
        self._first: dict[str, tuple[Any, Tensor]] = {}  # the measured weight, and its first size
        self._highest: dict[str, float] = {}  # learning rate so far
        self._moved: set[str] = set()  # optimizers whose weights did move, by the rate they have

    def forget(self, name: str) -> None:
        """Drop what is known of an optimizer that has died."""
        for table in (self._weights, self._latest, self._first, self._highest):
            table.pop(name, None)
        self._moved.discard(name)

    def before_step(
        self, optimizer: Optimizer, name: str, filled: Sequence[Any], norms: Sequence[Tensor] | None
    ) -> None:
        """Copy a part of the largest weight that has a gradient, and is to move as others do.

        `norms` are those of the gradients, if they are known.
        """
        if isinstance(optimizer, torch.optim.LBFGS):
            self._moved.add(name)  # as far as there was something to gain, all in the first step
        largest = max(_leading(optimizer, filled), key=torch.Tensor.numel)
        before = sliced(largest, _SLICE).clone()
        at = next(at for at, each in enumerate(filled) if each is largest)
        gradient = None if norms is None else norms[at]
        rate = _rate(optimizer, largest)
        self._weights[name] = _Weight(weakref.ref(largest), before, gradient, rate)

    def after_step(self, name: str, place: Place | None) -> None:
        """Compare it with what it is now, and tell what has arrived."""
        kept = self._weights.pop(name, None)
        weight = None if kept is None else kept.weak()
        if kept is not None and weight is not None:
            before = kept.before.float()
            change = torch.linalg.vector_norm(sliced(weight, _SLICE).float() - before)
            now = torch.linalg.vector_norm(before)
            first = self._first_size(name, weight, now)
            gradient = torch.zeros_like(now) if kept.gradient is None else kept.gradient
            # One fetch for all; what they say is computed on the host.
            sizes = Later(torch.stack([change, now, first, gradient]))
            held = self._book.parameters.get(id(weight))
            label = None if held is None else held.label
            part = before.numel() / weight.numel()
            self._waiting.append(_Change(name, label, kept.rate, place, sizes, part))
        while self._waiting and self._waiting[0].sizes.is_here:
            self._take(self._waiting.popleft())

    def _first_size(self, name: str, weight: Tensor, now: Tensor) -> Tensor:
        """Return what the size of a weight was when it was first measured."""
        known = self._first.get(name)
        if known is None or known[0]() is not weight:
            known = self._first[name] = (weakref.ref(weight), now)
        return known[1].to(now.device)

    def _take(self, change: _Change) -> None:
        moved, now, first, gradient = change.sizes.numbers
        first = max(first, _TINY)
        size = max(now, first)  # one that has become small on its way is not a small one
        ratio, of_first = moved / size, moved / first
        gradient *= math.sqrt(change.part) / size
        name = change.optimizer
        self._series.point("update_ratio", ratio, optimizer=name)
        if not math.isfinite(ratio):
            return
        latest = self._latest.setdefault(name, deque(maxlen=_RATIOS))
        latest.append(_Latest(ratio, change.rate, of_first, gradient))
        if change.rate is not None:
            self._highest[name] = max(change.rate, self._highest.get(name, 0.0))
        if ratio >= _VANISHING:
            self._moved.add(name)
        if len(latest) < _RATIOS:
            return
        usual = usual_ratio([each[:2] for each in latest], self._highest.get(name))
        if usual is not None and usual < _VANISHING and self._is_meant(name, latest):
            usual = None
        self._show("update-ratio", change, usual, "relative")
        of_first = median([each.of_first for each in latest])
        growth = self._growth(name) if of_first >= _BLOWN else 0.0
        if growth >= _WORSE:  # said once and for all: what comes after may well be small
            self._show("update-of-first", change, of_first, "times")
            self._show("loss-growth", change, growth, "times")

    def _show(self, quantity: str, change: _Change, value: float | None, unit: str) -> None:
        name, label, _, place, *_ = change
        if value is None:
            self._gauges.hide(quantity, name)
        else:
            self._gauges.show(quantity, name, value, unit=unit, subject=label, place=place)

    def _is_meant(self, name: str, latest: Iterable[_Latest]) -> bool:
        """Say whether updates that change next to nothing are no mistake."""
        if name in self._moved:
            return True  # it is the gradient that has vanished: the run has come to an end
        # As a group that is far slower than another, so an optimizer.
        if self._highest.get(name, 0.0) < _LOW * max(self._highest.values(), default=0.0):
            return True
        gradient = median(each.gradient for each in latest)
        return gradient < _FELT and not any(
            each.rate and each.ratio / each.rate >= _DRIVEN for each in latest
        )

    def _growth(self, name: str) -> float:
        """Return what the latest losses are, usually, over the first one; 0 if that is unknown."""
        losses = [abs(value) for _, _, value in self._series.lines.get(f"loss/{name}", ())]
        if len(losses) <= _LOSSES or not losses[0]:
            return 0.0
        return median(losses[-_LOSSES:]) / losses[0]


def usual_ratio(latest: list[tuple[float, float | None]], highest: float | None) -> float | None:
    """Return the usual ratio of the latest updates, each with its learning rate.

    Updates that are small because a schedule makes them so are compared with its highest rate; far
    below that, or while it still rises, nothing is known. None as well where single updates do all
    of the work.

    >>> usual_ratio([(1e-8, 0.5)] * 3, 0.5), usual_ratio([(1e-8, 0.25)] * 3, 0.5)
    (1e-08, 2e-08)
    >>> usual_ratio([(1e-9, 1e-7)] * 3, 0.1) is None
    True
    >>> usual_ratio([(1e-9, 1e-7), (2e-9, 2e-7)], 2e-7) is None  # it warms up
    True
    >>> usual_ratio([(0.0, 0.1), (0.0, 0.1), (0.2, 0.1)], 0.1) is None
    True
    """
    ratios = [ratio for ratio, _ in latest]
    usual = median(ratios)
    if usual >= _VANISHING:
        return usual
    rates = [rate for _, rate in latest if rate is not None]
    if max(ratios) >= _VANISHING or len(rates) < len(latest) or rates[-1] > rates[0]:
        return None
    if not highest:
        return None
    working = [(ratio, rate) for ratio, rate in latest if rate and rate >= _LOW * highest]
    if not working:
        return None
    return median(ratio * highest / rate for ratio, rate in working)


def _leading(optimizer: Optimizer, filled: Sequence[Any]) -> Sequence[Any]:
    """Return those of an optimizer's parameters whose rate is not far below that of another."""
    groups = optimizer.param_groups
    if len(groups) == 1:
        return filled
    rates = [_number(group.get("lr")) or 0.0 for group in groups]
    slow = [group for group, rate in zip(groups, rates, strict=True) if rate < _LOW * max(rates)]
    left = {id(parameter) for group in slow for parameter in group["params"]}
    return [parameter for parameter in filled if id(parameter) not in left] or filled


def _rate(optimizer: Optimizer, weight: Tensor) -> float | None:
    """Return the learning rate of a weight, if that needs no device."""
    groups = optimizer.param_groups
    if len(groups) == 1:
        return _number(groups[0].get("lr"))
    for group in groups:
        if any(parameter is weight for parameter in group["params"]):
            return _number(group.get("lr"))
    return None


def _number(rate: Any) -> float | None:
    return float(rate) if isinstance(rate, int | float) else None
