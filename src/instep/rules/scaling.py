"""What the rules about mixed precision ask: which scaler may be at work."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from instep.rules.reading import measured
from instep.trace import Step, Unscale

if TYPE_CHECKING:
    from instep.rules.view import View
    from instep.trace import WindowRecord


def may_scale(view: View, scaler: str | None) -> bool:
    """Say whether a scaler, or any where None, is not known to be switched off.

    A scaled loss without any scaler is apex's: it unscales when its context is left.
    """
    candidates = view.scalers if scaler is None else {scaler}
    return any(_may_be_on(view, candidate) for candidate in candidates)


def scaler_of(window: WindowRecord) -> str | None:
    """Return the scaler that a window's step or unscaling went through."""
    named = (event.scaler for event in reversed(window.events) if isinstance(event, Step | Unscale))
    return next((scaler for scaler in named if scaler is not None), None)


def scale_of(view: View, scaler: str | None) -> float | None:
    """Return the latest loss scale of a scaler, or of any, where a running job has measured it."""
    return _scale(view, scaler, "loss-scale")


def most_scaled(view: View, scaler: str | None) -> float | None:
    """Return the highest loss scale so far: unlike the latest, it is soon the same to the end."""
    return _scale(view, scaler, "loss-scale-at-most") or scale_of(view, scaler)


def _scale(view: View, scaler: str | None, quantity: str) -> float | None:
    scales = {event.subject: event.value for event in measured(view, quantity)}
    return scales.get(scaler) or next(iter(scales.values()), None)


def is_of_scale(number: float | None, scale: float | None) -> bool:
    """Say whether a number is more likely one times the loss scale than a number by itself.

    Limits and weights are near 1, and scales far above it: what is nearer to the scale, in powers,
    was multiplied by it.

    >>> is_of_scale(1.0, 64.0), is_of_scale(5.0, 65536.0), is_of_scale(0.5 * 65536.0, 65536.0)
    (False, False, True)
    """
    return number is not None and scale is not None and number > max(1.0, math.sqrt(scale))


def _may_be_on(view: View, scaler: str) -> bool:
    facts = view.facts.get(scaler, {})
    return facts.get("enabled") is not False and "apex" not in str(facts.get("type", ""))
