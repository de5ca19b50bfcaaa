"""The close of a window, in its one order: normalise → unscale → check → clip → step → clear.

This is the portable path and the reference for every faster one. It reads the device once, decides
in plain numbers, and then touches the gradients once: normalisation, unscaling and clipping are one
factor.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from instep.engine import arithmetic
from instep.engine import gradients as grads
from instep.engine.tally import Reading, read
from instep.engine.update import Update
from instep.errors import ItemsError, WindowError

if TYPE_CHECKING:
    from torch import Tensor

    from instep.engine.arithmetic import TermTotal
    from instep.engine.lane import Lane
    from instep.engine.update import Skipped


# Half of what fp16 can hold, the narrowest type there is to train in.
FITS_EVERYWHERE = 3e4


def close(lane: Lane, scale: float, *, keep_gradients: bool) -> Update:
    """Turn what a lane has gathered into one update, or into a skipped one that says why.

    Whatever is raised, the window has ended and its gradients are cleared.
    """
    lane.is_closing = True
    try:
        update = _closed(lane, scale)
    except BaseException:
        lane.end()
        raise
    lane.end(keep_gradients=keep_gradients)
    return update


def _closed(lane: Lane, scale: float) -> Update:
    buffers = lane.buffers
    if lane.tallies:
        buffers.require_untouched()
    if buffers.is_single:
        held = _held(lane)
        reading = read(lane.tallies, grads.folded(grads.norms(held)))
        terms = terms_of(reading, held)
        factor = one_factor(lane, terms, reading.references) / scale
        raw_norm = math.hypot(*reading.extra)
    else:
        # A buffer per denominator: each gets its own factor before anything can be measured.
        reading = read(lane.tallies, [])
        terms = terms_of(reading, [])
        factors = factors_of(terms, reading.references)
        buffers.merge({term: factor / scale for term, factor in factors.items()})
        held = _held(lane)
        factor = 1.0
        raw_norm = math.hypot(*grads.to_host(grads.folded(grads.norms(held))))
    if not math.isfinite(raw_norm):
        raw_norm = grads.exact_norm(held)
    remember_references(lane, terms, lane.micro_batches)
    return act(lane, held, terms, factor=factor, raw_norm=raw_norm)


def _held(lane: Lane) -> list[Tensor]:
    grads.coalesce(lane.buffers.members)
    return lane.buffers.gradients()


def act(
    lane: Lane,
    held: list[Tensor],
    terms: dict[str, TermTotal],
    *,
    factor: float,
    raw_norm: float,
) -> Update:
    """Update from gradients that have been measured, or say why there is nothing to update."""
    norm = raw_norm * factor
    skipped: Skipped | None = None
    clip = 1.0
    if not any(term.items > 0 for term in terms.values()):
        skipped, norm = "empty", 0.0
    elif not held:
        _refuse_nothing(lane)
    elif not math.isfinite(norm):
        skipped = "non-finite"
    else:
        clip = arithmetic.clip_factor(norm, lane.clip_norm)
        grads.multiply(held, factor * clip)
        if lane.clip_value is not None:
            grads.clamp(held, lane.clip_value)
        lane.buffers.narrow()
        if _overflows(lane, norm * clip):
            skipped = "non-finite"
        else:
            lane.step()
            # Whoever trains inside an autocast region of their own must not meet the old weights.
            torch.clear_autocast_cache()
    return Update(
        optimizer=lane.name,
        terms=terms,
        grad_norm=norm,
        clip_factor=clip,
        micro_batches=lane.micro_batches,
        skipped=skipped,
    )


def _overflows(lane: Lane, norm: float) -> bool:
    """Whether a gradient that was finite as a sum is too large for its parameter's own type.

    No element is larger than the norm, so that a second look (a sync) is hardly ever taken.
    """
    if norm < FITS_EVERYWHERE or norm < 0.5 * grads.largest_allowed(lane.buffers.members):
        return False
    return not math.isfinite(lane.buffers.largest_element())


def factors_of(terms: dict[str, TermTotal], references: dict[str, float]) -> dict[str, float]:
    """Return what makes the sum of each term a mean over its items."""
    return {
        name: arithmetic.normaliser(references[name], term.items) for name, term in terms.items()
    }


def one_factor(lane: Lane, terms: dict[str, TermTotal], references: dict[str, float]) -> float:
    """Return the factor that all terms of a shared buffer have in common."""
    factors = [factor for factor in factors_of(terms, references).values() if factor]
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
            fix="let count= return what backward declares, and let such windows run to their end; "
            "or leave count= out: each term then gets a buffer of its own.",
            more="terms",
        )
    return shared


def terms_of(reading: Reading, held: list[Tensor]) -> dict[str, TermTotal]:
    """Add up what was declared, or say what of it is no count."""
    for name, parts in reading.parts.items():
        for index, part in enumerate(parts):
            if not 0 <= part.items <= arithmetic.LARGEST_COUNT:
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
    return {name: arithmetic.total(parts) for name, parts in reading.parts.items()}


def _refuse_nothing(lane: Lane) -> None:
    raise WindowError(
        f"no gradient reached the parameters of {lane.name!r}.",
        why="the loss does not depend on them: they are frozen, they were replaced in the model "
        "after the optimizer was built, or the optimizer is another model's.",
        fix="build the optimizer from the parameters of the model that made the loss.",
        more="setup",
    )


def remember_references(lane: Lane, terms: dict[str, TermTotal], micro_batches: int) -> None:
    """Take the usual count of this window as the reference of the next one."""
    for name, term in terms.items():
        if term.items > 0:
            lane.references[name] = arithmetic.reference(term.items / max(micro_batches, 1))
