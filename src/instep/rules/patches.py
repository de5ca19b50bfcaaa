"""Loops over the pieces of one batch, as the trace shows them."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from instep.rules.accumulation import judged
from instep.trace import Backward, Drawn, EpochEnd, Step
from instep.trace.pattern import pattern
from instep.trace.plain import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.rules.view import View

# Loops over parts of the loss and not of the batch: their sum is what is meant.
_TERMS = pattern(
    r"head|task|loss|criterion|scale|level|layer|branch|stage|objective|term|domain|output"
    r"|reward|log_?prob|saved|traj|episode|agent|return|states|hidden|activation|feature_?map",
    re.IGNORECASE,
)
_ACCUMULATION = pattern(
    r"accum|micro|mini|patch|tile|crop|chunk|split|sub_?batch|virtual|grad_acc|\bga\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Piecewise:
    """An optimizer that steps inside a loop over the pieces of a batch."""

    optimizer: str
    step: Step
    drawn: Drawn
    backward: Backward | None
    steps_per_batch: int
    is_patches: bool


def piecewise(view: View) -> Iterator[Piecewise]:
    """Give the optimizers that step more than once for one batch, once per piece of it."""
    if all(drawn.of is None for drawn in view.trace.of(Drawn)):
        return
    for optimizer, _ in judged(view):
        batch, drawn, backward = 0, None, None
        seen: dict[tuple[int, str | None], Piecewise] = {}
        count: Counter[tuple[int, str | None]] = Counter()
        for event in view.events:
            match event:
                case Drawn(of=None):
                    batch, drawn = batch + 1, None
                case Drawn():
                    # Outside of any batch, chunks of a corpus are batches themselves.
                    drawn = event if event.of != "loop" or is_patches(view, event) else None
                case EpochEnd():
                    batch, drawn = batch + 1, None
                case Backward():
                    backward = event
                case Step() if event.optimizer == optimizer and drawn is not None:
                    key = (batch, drawn.loader)
                    count[key] += 1
                    seen[key] = Piecewise(
                        optimizer, event, drawn, backward, count[key], is_patches(view, drawn)
                    )
        yield from (found for key, found in seen.items() if count[key] > 1)


def is_patches(view: View, drawn: Drawn) -> bool:
    """Say whether pieces are evidently parts of an image or a sequence."""
    return drawn.loader is not None and bool(view.facts.get(drawn.loader, {}).get("patches"))


def are_pieces(view: View, drawn: Drawn) -> bool:
    """Say whether a loop surely runs over parts of a batch, and not over parts of the loss.

    A range may count anything, so its words have to say what it counts; a written number outside
    of any batch counts the batches of an update.
    """
    if is_patches(view, drawn):
        return True
    type_ = view.facts.get(drawn.loader or "", {}).get("type")
    words = f"{drawn.loader} {type_ if isinstance(type_, str) else ''}"
    if "range(" in words:
        is_number = drawn.of == "loop" and bool(re.search(r"range\(\d+\)", words))
        return is_number or bool(_ACCUMULATION.search(words))
    return bool(_ACCUMULATION.search(words)) or not _TERMS.search(words)
