"""The close of a window in two kernels: one norm, one update, and nothing read back in between.

It decides what `close` decides, on the device: the factor of the window and of clipping, and
whether the norm is finite. Losses, counts and the norm travel to the host while training goes on,
and are read when somebody asks for the result, at the latest before the next close.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from instep.engine import arithmetic
from instep.engine import gradients as grads
from instep.engine.close import close, factors_of, one_factor, remember_references, terms_of
from instep.engine.flat_buffers import FlatBuffers
from instep.engine.flattening import why_not_now
from instep.engine.tally import Numbers, read
from instep.engine.update import Update
from instep.errors import four_lines, warn
from instep.fast.flat import MOST_TERMS

if TYPE_CHECKING:
    from collections.abc import Callable

    from instep.engine.lane import Lane
    from instep.engine.tally import Number, Tally
    from instep.engine.update import Skipped


class Pending:
    """An update that was launched; its numbers come when they are asked for.

    It stands in for the `Update` that it becomes: every attribute is that one's.
    """

    def __init__(self, finish: Callable[[], Update]) -> None:
        self._finish: Callable[[], Update] | None = finish
        self._update: Update | None = None
        self.then: Callable[[Update], None] | None = None
        """What follows once the numbers are known."""

    def resolve(self) -> Update:
        """Wait for the numbers, once."""
        if self._update is None:
            assert self._finish is not None  # noqa: S101 -- one of the two is there
            self._update = self._finish()
            self._finish = None
            if self.then is not None:
                self.then(self._update)
        return self._update

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.resolve(), name)

    def __repr__(self) -> str:
        return repr(self.resolve())

    def __eq__(self, other: object) -> bool:
        return self.resolve() == (other.resolve() if isinstance(other, Pending) else other)

    def __hash__(self) -> int:
        return hash(self.resolve())


def close_fused(lane: Lane, scale: float, *, keep_gradients: bool) -> Update | Pending:
    """Launch the update of a lane whose buffers are flat.

    A window that has nothing to update takes the portable way, which says why; so does one whose
    optimizer has other options or hooks by now, which the kernel does not know.
    """
    buffers = lane.buffers
    assert isinstance(buffers, FlatBuffers)  # noqa: S101 -- the caller looked
    counted = [tally for tally in lane.tallies.values() if _may_have_items(tally)]
    if not counted or not buffers.gradients():
        return close(lane, scale, keep_gradients=keep_gradients)
    reason = why_not_now(lane.optimizers)
    if reason is not None or not all(flat.is_fit for flat in buffers.flats):
        _say(lane, reason or "the options of a parameter group have changed")
        buffers.fill_spared()
        return close(lane, scale, keep_gradients=keep_gradients)
    lane.is_closing = True
    try:
        buffers.require_untouched()
        buffers.fill_spared()
        pending = _launched(lane, buffers, scale, keep_gradients=keep_gradients)
    except BaseException:
        lane.end()
        raise
    lane.end(keep_gradients=keep_gradients)
    return pending


def _say(lane: Lane, reason: str) -> None:
    if lane.has_said != reason:
        lane.has_said = reason
        text = four_lines(
            f"fused=True has no effect for {lane.name!r} now.",
            why=f"{reason}. Such windows close the portable way, with the same numbers. (Said "
            "once.)",
            fix="take the hook away, or set options before the Stepper is made.",
            more="fast",
        )
        warn(text)


def _may_have_items(tally: Tally) -> bool:
    return any(isinstance(items, Tensor) or items > 0 for _, items, _, _ in tally.declared)


def _launched(lane: Lane, buffers: FlatBuffers, scale: float, *, keep_gradients: bool) -> Pending:
    flats = buffers.flats
    factor, parts, shares = _gradient(lane, buffers, scale, keep_gradients=keep_gradients)
    norms = [flat.norm(found, shares) for flat, found in zip(flats, parts, strict=True)]
    norm = norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms))
    if isinstance(factor, Tensor):
        # A window without items is not updated, whatever was added to its gradient.
        norm = torch.where(factor > 0, norm, torch.full_like(norm, math.nan))
    told = _told(lane, factor, norm)
    if shares is not None:
        told = torch.cat([told, shares.to(told.dtype)])
    actives = [buffers.active_in(flat) for flat in flats]
    for flat, active, found in zip(flats, actives, parts, strict=True):
        flat.take_state()
        flat.write_rows(active)
        flat.launch(norm.to(flat.wide), told.to(flat.wide), found)
    # Nearly always it will have been made: who copies the optimizer meanwhile finds it counted.
    new = [flat.note_update(active) for flat, active in zip(flats, actives, strict=True)]
    numbers = Numbers(lane.tallies, [norm, told[0]])
    if keep_gradients:
        _normalise(buffers, norm, told)
    _announce(lane, buffers)
    micro_batches = lane.micro_batches

    def finish() -> Update:
        reading = numbers.read()
        raw_norm, factor = reading.extra
        terms = terms_of(reading, buffers.gradients())
        length = raw_norm * factor
        skipped: Skipped | None = None
        if not any(term.items > 0 for term in terms.values()):
            skipped, length = "empty", 0.0
        elif not math.isfinite(length):
            skipped = "non-finite"
        if skipped:
            for flat, active, first in zip(flats, actives, new, strict=True):
                flat.forget_update(active, first)
        remember_references(lane, terms, micro_batches)
        clip = 1.0 if skipped else arithmetic.clip_factor(length, lane.clip_norm)
        return Update(lane.name, terms, length, clip, micro_batches, skipped)

    return Pending(finish)


class _Gradient(NamedTuple):
    """What a window's gradient is made of."""

    factor: Number
    parts: list[list[Tensor]]
    """For each flat buffer, the gradients of the terms; none where it holds the sum itself."""
    shares: Tensor | None = None
    """The factor of each term."""


def _gradient(lane: Lane, buffers: FlatBuffers, scale: float, *, keep_gradients: bool) -> _Gradient:
    whole: list[list[Tensor]] = [[] for _ in buffers.flats]
    if buffers.is_single:
        return _Gradient(_factor(lane, scale), whole)
    # A buffer per denominator: each has its share when they are added up.
    factors = {term: one / scale for term, one in _factors(lane).items()}
    count = sum(bool(one) for one in factors.values())
    if keep_gradients or not 0 < count <= MOST_TERMS:
        buffers.merge(factors)
        return _Gradient(1.0, whole)
    by_term = buffers.parts(factors)
    # In the widest type of all: what is rounded for one flat buffer would be rounded for all.
    widest = max((flat.wide for flat in buffers.flats), key=lambda dtype: dtype.itemsize)
    numbers = [factors[term] for term in by_term]
    shares = _sent(numbers, widest, buffers.flats[0].device)
    return _Gradient(1.0, [list(one) for one in zip(*by_term.values(), strict=True)], shares)


def _factors(lane: Lane) -> dict[str, float]:
    """Return what makes the sum of each term a mean; counts on the device are waited for.

    Whether a term had items decides which parameters are updated, so it must be known here.
    """
    found = {}
    for name, tally in lane.tallies.items():
        counts = [items for _, items, _, _ in tally.declared if not isinstance(items, Tensor)]
        if len(counts) < len(tally.declared) or isinstance(tally.reference, Tensor):
            reading = read(lane.tallies, [])
            return factors_of(terms_of(reading, []), reading.references)
        known = 1.0 if tally.reference is None else tally.reference
        found[name] = arithmetic.normaliser(known, math.fsum(counts))
    return found


def _sent(numbers: list[float], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Send a few numbers to the device, without waiting for it."""
    sent = torch.tensor(numbers, dtype=dtype)
    if device.type == "cuda":
        sent = sent.pin_memory()
    return sent.to(device, non_blocking=True)


def _factor(lane: Lane, scale: float) -> Number:
    """Return what makes the window's sum a mean: a number, or on the device if counts are there."""
    if len(lane.tallies) > 1:
        reading = read(lane.tallies, [])
        return one_factor(lane, terms_of(reading, []), reading.references) / scale
    (tally,) = lane.tallies.values()
    reference = 1.0 if tally.reference is None else tally.reference
    counts = [items for _, items, _, _ in tally.declared]
    on_host = math.fsum(items for items in counts if not isinstance(items, Tensor))
    on_device = [items for items in counts if isinstance(items, Tensor)]
    if not on_device and not isinstance(reference, Tensor):
        return arithmetic.normaliser(reference, on_host) / scale
    total = torch.stack([items.to(torch.float64).reshape(()) for items in on_device]).sum()
    total = total + on_host
    return torch.where(total > 0, reference / total, 0.0) / scale


def _told(lane: Lane, factor: Number, norm: Tensor) -> Tensor:
    """Return what the kernel is told: the factor, the largest norm, the largest value."""
    largest = lane.clip_norm if lane.clip_norm and math.isfinite(lane.clip_norm) else 0.0
    limits = (largest, lane.clip_value or 0.0)
    if isinstance(factor, Tensor):
        told = torch.tensor((0.0, *limits), dtype=norm.dtype).to(norm.device, non_blocking=True)
        told[0] = factor
        return told
    return _sent([factor, *limits], norm.dtype, norm.device)


def _normalise(buffers: FlatBuffers, norm: Tensor, told: Tensor) -> None:
    """Let gradients that stay readable be what the update was made of."""
    factor, limit, bound = told
    ratio = torch.where(limit > 0, limit / (norm * factor + arithmetic.CLIP_GUARD), 1.0)
    for flat in buffers.flats:
        flat.gradients.mul_(factor * ratio.clamp(max=1.0))
        flat.gradients.copy_(
            torch.where(bound > 0, flat.gradients.clamp(-bound, bound), flat.gradients)
        )


def _announce(lane: Lane, buffers: FlatBuffers) -> None:
    """Call the optimizers' own `step` without gradients: hooks and schedulers count on it."""
    held = [p.grad for p in buffers.members]
    grads.clear(buffers.members)
    for optimizer in lane.optimizers:
        optimizer.step()
    torch.clear_autocast_cache()
    buffers.begin()
    grads.assign(buffers.members, held)
