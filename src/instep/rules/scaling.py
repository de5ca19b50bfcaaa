"""What the rules about mixed precision ask: which scaler may be at work."""

from __future__ import annotations

from typing import TYPE_CHECKING

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


def _may_be_on(view: View, scaler: str) -> bool:
    facts = view.facts.get(scaler, {})
    return facts.get("enabled") is not False and "apex" not in str(facts.get("type", ""))
