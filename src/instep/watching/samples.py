"""What is measured in a job, as often as it costs next to nothing.

Nothing here changes a number of the user's, draws a random one, or waits for a device: what is
computed on a device is fetched at a later update.
"""

from __future__ import annotations

import math
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from instep.watching.agreement import EVERY, Ranks
from instep.watching.foreign import Foreign
from instep.watching.kept import KeptGraphs
from instep.watching.later import Later
from instep.watching.lowprecision import LowPrecision
from instep.watching.nonfinite import Nonfinite
from instep.watching.ratios import Ratios
from instep.watching.unreached import Unreached

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from instep.trace import Place
    from instep.watching.book import Book
    from instep.watching.entries import Touched
    from instep.watching.gauges import Gauges
    from instep.watching.graph import Reading
    from instep.watching.series import Series

SHARE = 0.01
"""Of the job's time that measuring may take."""
_FIRST = 40
"""Updates at the beginning that are measured whatever it costs: mistakes show there."""
_FIRST_LOSSES = 512
"""Updates at the beginning whose losses are all read."""
_SELDOM = 64
"""Updates after which a loss is read however little time there is: one that is not finite says
enough."""
_PLAIN = frozenset({torch.nn.Parameter, torch.Tensor})
"""Kinds of parameters that are all here: what is spread over ranks is not looked at alone."""
_HALVES = frozenset({torch.float16, torch.bfloat16})
_NARROW = _HALVES | {torch.float32}


class Sampler:
    """Measures losses, norms and updates."""

    def __init__(self, book: Book, series: Series, gauges: Gauges) -> None:
        self.book = book
        self.series = series
        self.gauges = gauges
        self.spent = 0.0
        self.foreign = Foreign(book, gauges)
        self.unreached = Unreached(book, gauges)
        self.lowprecision = LowPrecision(book, gauges)
        self.ranks = Ranks(series, gauges)
        self.ratios = Ratios(book, series, gauges)
        self.kept = KeptGraphs(gauges)
        self.nonfinite = Nonfinite(book, gauges)
        self._waiting: list[tuple[str, str, Later]] = []
        self.looks = True
        """At the window that is open."""
        self.quiet: Touched | None = None
        """What the latest backward went into, if there is nothing to do after another one."""
        self._losses: list[tuple[Tensor, float]] = []
        self._norm: Any = None
        self._was_due = False  # just before the latest update
        self._places: dict[str, Place | None] = {}  # of steps, by optimizer
        self._added: dict[str, dict[Any, int]] = {}  # backwards that were in the latest update
        self._updates = series.updates
        self._scales: dict[str, Later] = {}
        self._most_scaled: dict[str, float] = {}  # the highest so far, by scaler

    def is_due(self, updates: int) -> bool:
        """Say whether there is time to measure."""
        return updates < _FIRST or self.spent < SHARE * (perf_counter() - self.series.began)

    def forget(self, name: str) -> None:
        """Drop what is known of an optimizer that has died."""
        for table in (self._places, self._added, self._most_scaled):
            table.pop(name, None)
        self.ratios.forget(name)
        self.unreached.forget(name)
        self.nonfinite.forget(name)

    # Backward

    def before_backward(self, root: Tensor, loss: Tensor | None, reading: Reading) -> None:
        """Look at a loss before any scale, with the factor in it, and mark its graph.

        Asked for only while the window that is open is looked at.
        """
        factor = reading.factor
        if loss is not None and ((loss.ndim and loss.numel() != 1) or type(loss) not in _PLAIN):
            loss = None
        if factor and loss is not None:
            self._losses.append((loss.detach(), factor))
        updates = self.series.made
        self.kept.before_backward(root, updates)
        if self.lowprecision.held is not None:
            self.lowprecision.before_backward(is_due=self.is_due(updates))

    def after_backward(self, touched: Touched, place: Place | None) -> None:
        """Look at what the gradients went into."""
        self.ranks.after_backward(touched)
        if self.looks:
            self.kept.after_backward(place)
        if touched.foreign:
            self.foreign.after_backward(touched, place)
        self.lowprecision.after_backward(touched)
        # The next one that goes there need not ask, while nothing is looked at.
        self.quiet = None if touched.foreign or self.lowprecision.held else touched

    # Step

    def scaled(self, scaler: str, scale: Any) -> None:
        """Take the number that a scaler has multiplied a loss by."""
        waiting = self._scales.get(scaler)
        if waiting is None and self.is_due(self.series.made):
            waiting = self._scales[scaler] = Later(scale)
        if waiting is not None and waiting.is_here:
            (number,) = self._scales.pop(scaler).numbers
            self.gauges.show("loss-scale", None, number, unit="times", subject=scaler)
            most = self._most_scaled[scaler] = max(number, self._most_scaled.get(scaler, 0.0))
            self.gauges.show("loss-scale-at-most", None, most, unit="times", subject=scaler)

    def clipped(self, norm: Any) -> None:
        """Take the norm that a clip has computed."""
        self._norm = norm

    def before_step(
        self, optimizer: Optimizer, name: str, added: dict[Any, int] | None = None
    ) -> None:
        """Look at gradients and weights just before an update.

        `added` are the backwards since the last clear; a clear begins a new count.
        """
        if added and self._added.get(name) is added:
            count = float(sum(added.values()))
            self.gauges.show("backwards-in-gradient", name, count, unit="backwards")
        elif added is not None:
            self._added[name] = added
        updates = self._updates.get(name, 0)
        started = perf_counter()
        # As `is_due` says it.
        self._was_due = updates < _FIRST or self.spent < SHARE * (started - self.series.began)
        if self._was_due or name in self.nonfinite.due:
            self._was_due = True
            self._look(optimizer, name, updates)
            self.spent += perf_counter() - started
        elif name in self.nonfinite.whole:
            self.nonfinite.skipped(name)

    def _look(self, optimizer: Optimizer, name: str, updates: int) -> None:
        """Measure gradients and weights."""
        every = [p for group in optimizer.param_groups for p in group["params"]]
        filled = [(p, grad) for p in every if (grad := p.grad) is not None]
        plain = [(p, grad) for p, grad in filled if type(p) in _PLAIN and not grad.is_sparse]
        dense, grads = zip(*plain, strict=True) if plain else ((), ())
        self.nonfinite.before_step(optimizer, name, dense)
        if dense:
            norms = None
            if getattr(optimizer, "found_inf", None) is None:
                norms = _norms(grads)
                self._later("grad_norm", name, torch.linalg.vector_norm(torch.stack(norms)))
            else:  # it looks for infinities itself, and its gradients are scaled
                self.nonfinite.skipped(name)
            self.ratios.before_step(optimizer, name, dense, norms)
        self.unreached.before_step(name, every, [p for p, _ in filled], updates)

    def after_step(
        self, optimizer: Optimizer, name: str, place: Place | None, updates: int
    ) -> None:
        """Look at weights just after an update, and fetch what was measured before it."""
        ranks = self.ranks
        is_due = updates < EVERY or updates % EVERY == 0
        if is_due or ranks.leaving or ranks.is_counting or self.series.skipped:
            ranks.after_step(optimizer, name, place)
        if not (self.looks or self._waiting):
            self._norm = None
            self.looks = self._was_due or updates % _SELDOM == 0
            return
        started = perf_counter()
        self._places[name] = place
        self.ratios.after_step(name, place)
        if type(self._norm) in _PLAIN:
            self._later("clip_norm", name, self._norm)
        self._norm = None
        groups = optimizer.param_groups
        rate = groups[0].get("lr") if groups else None
        if isinstance(rate, int | float):
            self.series.point("lr", float(rate), optimizer=name)
        self._mean_loss(name)
        self._fetch()
        self.nonfinite.after_step(name, place)
        self.kept.after_step(self.series.made)
        self.unreached.after_step(name, place)
        self.foreign.after_step(is_due=self.is_due(updates))
        self.lowprecision.after_step(optimizer, name, place)
        self.spent += perf_counter() - started
        is_first = updates < _FIRST_LOSSES or updates % _SELDOM == 0
        self.looks = is_first or name in self.nonfinite.due or self.is_due(updates)

    def close(self) -> None:
        """Take back the hooks, and compare what there is to compare."""
        self.lowprecision.close()
        self.unreached.close()
        self.ranks.finish()

    def finish(self) -> None:
        """Look at what the job leaves, before it is judged."""
        if self.nonfinite.may_ask:
            self._fetch()
        self.nonfinite.close()
        self.kept.after_step(self.series.made, is_last=True)

    def _later(self, line: str, name: str, value: Any) -> None:
        self._waiting.append((line, name, Later(value)))

    def _mean_loss(self, name: str) -> None:
        """Read the losses of a window."""
        losses, self._losses = self._losses, []
        if not losses:
            return
        if all(loss.is_cpu for loss, _ in losses):
            mean = sum([float(loss) / factor for loss, factor in losses]) / len(losses)
            self.series.point("loss", mean, optimizer=name)
            if not math.isfinite(mean):
                self.nonfinite.alarm(name)
        else:
            # In one for all: each operation on a device is a launch.
            values = [loss if not loss.ndim else loss.reshape(()) for loss, _ in losses]
            wide = [value if value.dtype == torch.float32 else value.float() for value in values]
            parts = torch._foreach_div(wide, [factor for _, factor in losses])  # noqa: SLF001
            self._later("loss", name, torch.stack(parts).mean())

    def _fetch(self) -> None:
        arrived = [waiting for waiting in self._waiting if waiting[2].is_here]
        if len(arrived) < len(self._waiting):
            self._waiting = [waiting for waiting in self._waiting if waiting not in arrived]
        else:
            self._waiting.clear()
        for line, owner, value in arrived:
            (number,) = value.numbers
            self.series.point(line, number, optimizer=owner)
            if not math.isfinite(number) and line in {"loss", "grad_norm"}:
                (self.nonfinite.alarm if line == "loss" else self.nonfinite.suspected)(owner)


def _norms(grads: tuple[Tensor, ...]) -> tuple[Tensor, ...] | list[Tensor]:
    """Return how large each of some gradients is, in float32."""
    kinds = {grad.dtype for grad in grads}
    # The norm of many halves is out of their own range, and that of doubles is no narrower one.
    wide = torch.float32 if kinds & _HALVES and kinds <= _NARROW else None
    if kinds & _HALVES and wide is None:
        return [torch.linalg.vector_norm(grad).float() for grad in map(_widened, grads)]
    norms = torch._foreach_norm(grads, 2, wide)  # noqa: SLF001
    return norms if kinds <= _NARROW else [norm.float() for norm in norms]


def _widened(grad: Tensor) -> Tensor:
    return grad.float() if grad.dtype in _HALVES else grad
