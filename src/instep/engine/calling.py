"""Whether a loss function can be called as a step calls it: asked before anything changes."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn

from instep.errors import SplitError


def require_two_arguments(loss_fn: Any) -> None:
    """Refuse a loss function that takes no (representations, batch)."""
    refused = _refused(loss_fn, 2)
    if refused is not None:
        signature, error = refused
        raise SplitError(
            f"loss_fn cannot be called with (representations, batch): {error}.",
            why="with encode=, it is called once, with what encode returned for all pieces and "
            f"the whole batch; it takes {signature}.",
            fix="write it as loss_fn(representations, batch), or leave encode out.",
            more="two-pass",
        ) from error


def require_one_argument(loss_fn: Any) -> None:
    """Refuse a loss function that does not take a piece of the batch alone."""
    refused = _refused(loss_fn, 1)
    if refused is not None:
        signature, error = refused
        raise SplitError(
            f"loss_fn cannot be called with one piece of the batch: {error}.",
            why="it is called with each piece: the batch as it was given, but shorter, so that "
            f"what was given as (x, y) comes as one tuple; it takes {signature}.",
            fix="write it as loss_fn(piece), and `x, y = piece` in it.",
            more="split",
        ) from error


def _refused(loss_fn: Any, count: int) -> tuple[inspect.Signature, TypeError] | None:
    """Return what a function takes, and why it cannot be called with so many arguments."""
    # A module passes on whatever it is called with.
    called = loss_fn.forward if isinstance(loss_fn, nn.Module) else loss_fn
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(*[None] * count)
    except TypeError as error:
        return signature, error
    return None
