"""The close of a window, in its one order: normalise → unscale → check → clip → step → clear.

This is the portable path and the reference for every faster one. It reads the device once, decides
in plain numbers, and then touches the gradients once: normalisation, unscaling and clipping are one
factor.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from instep.engine import arithmetic
from instep.engine import gradients as grads
from instep.engine.tally import Reading, read
from instep.engine.update import Update
from instep.errors import ItemsError, WindowError

if TYPE_CHECKING:
    from torch import Tensor

    from instep.engine.arithmetic import TermTotal
    from instep.engine.lane import Lane


def close(lane: Lane, scale: float, *, keep_gradients: bool) -> Update:
    """Turn what a lane has gathered into one update, or into a skipped one that says why.

    Whatever is raised, the window has ended and its gradients are cleared.
    """
    try:
        update = _closed(lane, scale)
    except BaseException:
        lane.end()
        raise
    lane.end(keep_gradients=keep_gradients)
    return update


def _closed(lane: Lane, scale: float) -> Update:
    parameters = lane.parameters()
    if lane.shares_buffer:
        held = _held(parameters)
        reading = read(lane.tallies, grads.folded(grads.norms(held)))
        _refuse(reading, held)
        terms = {name: arithmetic.total(parts) for name, parts in reading.parts.items()}
        factor = _one_factor(lane, terms, reading.references) / scale
        raw_norm = math.hypot(*reading.extra)
    else:
        # A buffer per denominator: each gets its own factor before anything can be measured.
        reading = read(lane.tallies, [])
        _refuse(reading, [])
        terms = {name: arithmetic.total(parts) for name, parts in reading.parts.items()}
        factors = _factors(terms, reading.references)
        lane.merge({term: factor / scale for term, factor in factors.items()})
        held = _held(parameters)
        factor = 1.0
        raw_norm = math.hypot(*grads.to_host(grads.folded(grads.norms(held))))
    if not math.isfinite(raw_norm):
        raw_norm = grads.exact_norm(held)
    _remember_references(lane, terms)
    return _act(lane, held, terms, factor=factor, raw_norm=raw_norm)


def _held(parameters: list[Tensor]) -> list[Tensor]:
    grads.coalesce(parameters)
    return [p.grad for p in parameters if p.grad is not None]


def _act(
    lane: Lane,
    held: list[Tensor],
    terms: dict[str, TermTotal],
    *,
    factor: float,
    raw_norm: float,
) -> Update:
    norm = raw_norm * factor
    empty = not any(term.items > 0 for term in terms.values())
    finite = math.isfinite(norm)
    clip = arithmetic.clip_factor(norm, lane.clip_norm) if finite else 1.0
    if not empty:
        grads.multiply(held, factor * clip)
        if lane.clip_value is not None:
            grads.clamp(held, lane.clip_value)
    if not empty and finite:
        lane.narrow()
        for optimizer in lane.optimizers:
            optimizer.step()
        for scheduler in lane.schedulers:
            scheduler.step()
    return Update(
        optimizer=lane.name,
        terms=terms,
        grad_norm=0.0 if empty else norm,
        clip_factor=clip,
        micro_batches=lane.micro_batches,
        skipped="empty" if empty else None if finite else "non-finite",
    )


def _factors(terms: dict[str, TermTotal], references: dict[str, float]) -> dict[str, float]:
    return {
        name: arithmetic.normaliser(references[name], term.items) for name, term in terms.items()
    }


def _one_factor(lane: Lane, terms: dict[str, TermTotal], references: dict[str, float]) -> float:
    factors = [factor for factor in _factors(terms, references).values() if factor]
    shared = arithmetic.shared_normaliser(factors)
    if shared is None:
        ahead = lane.totals or {}
        differences = ", ".join(
            f"{name}: {ahead.get(name, 0):g} ahead, {term.items:g} used"
            for name, term in terms.items()
        )
        raise WindowError(
            "the counts given ahead and the counts used differ between the terms.",
            why=f"{differences}; all terms share one gradient buffer, which cannot be normalised "
            "for each of them afterwards. The window was thrown away.",
            fix="let count= return what backward declares, or leave count= out: each term then "
            "gets a buffer of its own.",
            more="terms",
        )
    return shared


def _refuse(reading: Reading, held: list[Tensor]) -> None:
    for name, parts in reading.parts.items():
        for index, part in enumerate(parts):
            if not (part.items >= 0 and math.isfinite(part.items)):
                raise ItemsError(
                    f"backward {index} of term {name!r} declared {part.items:g} items.",
                    why="a count is zero or more, and finite. It was on the device, so it was read "
                    "only now, at the close; the window was thrown away.",
                    fix="count what the loss averages over; a weight belongs in weight=.",
                    more="items",
                )
    if held and not reading.parts:
        raise WindowError(
            f"{len(held)} gradients appeared in a window without a window.backward().",
            why="loss.backward() was called instead, so nothing says what the gradients are a mean "
            "of. The window was thrown away.",
            fix="replace loss.backward() by window.backward(loss, items=...).",
            more="stray-gradients",
        )


def _remember_references(lane: Lane, terms: dict[str, TermTotal]) -> None:
    """Take the usual count of this window as the reference of the next one."""
    for name, term in terms.items():
        if term.items > 0:
            lane.references[name] = arithmetic.reference(term.items / max(lane.micro_batches, 1))
