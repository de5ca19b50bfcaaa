"""INS203 mean-of-means

The loss is a mean over a number of items that differs from micro-batch to micro-batch: tokens that
are not padding, pixels that are not ignored. Dividing each by the number of micro-batches gives
every micro-batch the same weight, however many items it has. A token in a short micro-batch then
counts more than one in a long one, and the update is not that of the whole window.

**Fix.** Sum instead of averaging, and divide by the number of items in the whole window: count the
items of its micro-batches first (`reduction="sum"`, then `loss / items_in_window`), or multiply
each mean loss by its own count and divide the gradients by the total before the step.

**When it is fine.** If all micro-batches have about the same number of items, the difference is
small. A loss that may ignore items (`ignore_index`) need not meet any, so `instep check` makes a
note of it; a mask that is summed over, or pieces of which one is short, is a warning.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from instep.rules.accumulation import fact, is_close, is_sum, quoted, size_of, updates
from instep.rules.finding import Severity
from instep.rules.reading import distinct, measured
from instep.rules.view import report
from instep.trace import Backward, Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.rules.finding import Finding
    from instep.rules.view import View
    from instep.trace import Place, WindowRecord

CODE = "INS203"
NAME = "mean-of-means"
SUMMARY = "Means over different numbers of items are averaged as if the numbers were equal."
SEVERITY = Severity.WARNING
MILDEST = Severity.INFO
NEEDS = (Backward, Step)

BAD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for update in range(1000):
    optimizer.zero_grad()
    for micro in range(4):
        x, y = next(batches)
        loss = torch.nn.functional.cross_entropy(model(x), y, ignore_index=0) / 4
        loss.backward()  # <- here
    optimizer.step()
"""

GOOD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for update in range(1000):
    optimizer.zero_grad()
    window = [next(batches) for _ in range(4)]
    tokens = sum((y != 0).sum() for _, y in window)
    for x, y in window:
        loss = torch.nn.functional.cross_entropy(
            model(x), y, ignore_index=0, reduction="sum"
        )
        (loss / tokens).backward()
    optimizer.step()
"""


def judge(view: View) -> Iterator[Finding]:
    """Find windows that average ragged means with equal factors."""
    if not any(facts.get("ragged") for facts in view.facts.values()):
        return
    yield from distinct(
        _judge(view, window, step)
        for optimizer, windows in view.windows.items()
        if not view.is_opaque(optimizer)
        for window, step in updates(windows)
    )


def _number(view: View, ragged: list[Backward]) -> str:
    """Say by how much they differ, where a running job has counted."""
    places = {backward.place for backward in ragged}
    for gauge in measured(view, "items-differ"):
        if gauge.place in places:
            return (
                f" ({gauge.subject} in one window: an item of the smaller counts {gauge.value:.3g} "
                "times as much)"
            )
    return ""


def _weighted(view: View) -> set[Place | None]:
    """Return where losses go backward that have other factors within one update."""
    found: set[Place | None] = set()
    for windows in view.windows.values():
        for window in windows:
            kept: dict[Place | None, set[float | None]] = {}
            for backward in window.kept:
                kept.setdefault(backward.place, set()).add(backward.factor)
            found.update(place for place, factors in kept.items() if _differ(factors))
    return found


def _differ(factors: set[float | None]) -> bool:
    known = [factor for factor in factors if factor is not None]
    return bool(known) and not is_close(min(known), max(known))


def _judge(view: View, window: WindowRecord, step: Step) -> Finding | None:
    ragged = [
        backward
        for backward in window.kept
        if fact(view, backward, "ragged") and not is_sum(view, backward)
    ]
    size = size_of(view, window)
    if any(backward.place in view.read(_weighted) for backward in ragged):
        return None  # where micro-batches differ, so do their weights
    if size < 2 or len(ragged) < 2 or not is_close(window.factor_sum, len(window.kept) / size):
        return None
    if not all(is_close(backward.factor, ragged[0].factor or 0.0) for backward in ragged):
        return None
    # Items that may be ignored need not be: only a mask, or pieces of which one is short, are sure.
    sure = any(fact(view, backward, "ragged") is True for backward in ragged)
    return report(
        sys.modules[__name__],
        ragged[0],
        f"each micro-batch has the same weight in the update of {quoted([window.optimizer])}, "
        f"however many items its mean is over{_number(view, ragged)}.",
        severity=Severity.WARNING if sure else Severity.INFO,
        related=[(step, "stepped here")],
        evidence=[*window.kept, step],
    )
