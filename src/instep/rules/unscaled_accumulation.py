"""INS201 unscaled-accumulation

A window adds up the gradients of several micro-batches, but each loss is already a mean over its
own micro-batch. The sum of four means is four times the mean over the four: the update is as if the
learning rate were four times larger, and it changes whenever the number of micro-batches does.
Gradient clipping then starts at a quarter of its limit. Adam hides most of it, but not the
clipping, the weight decay's balance or the first steps; where nothing is clipped, this is a warning
with Adam and its kin.

**Fix.** Divide the loss by the number of micro-batches of the window before the backward:
`loss = loss / accumulation_steps`. If they differ in size (padded tokens, a short last batch),
divide a sum of losses by the number of items in the whole window instead.

**When it is fine.** If the loss is a sum and not a mean, also one that a loop adds up item by item,
if the gradients are divided before the step, or if the sum is what you want and the learning rate
was chosen for it. Where the window's size is an option that is 1 unless somebody gives it, this is
a note.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

from instep.rules.accumulation import (
    counted,
    fact,
    given,
    is_close,
    is_sum,
    micro_batches_of_loader,
    pieces,
    quoted,
    sizes,
)
from instep.rules.finding import Severity
from instep.rules.losses import divided
from instep.rules.mending import evidence, offer, step_statement
from instep.rules.patches import are_pieces
from instep.rules.reading import distinct, if_several, only_measures, written
from instep.rules.shares import accumulated, divides_more
from instep.rules.view import report
from instep.rules.window_mends import window_sizes
from instep.trace import Backward, Clip, Forward, Step, Zero

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.rules.finding import Finding, Fix
    from instep.rules.source import Source
    from instep.rules.view import View
    from instep.trace import Drawn, WindowRecord

CODE = "INS201"
NAME = "unscaled-accumulation"
SUMMARY = "Mean losses of several micro-batches are added up and not divided by their number."
SEVERITY = Severity.ERROR
MILDEST = Severity.INFO
NEEDS = (Backward, Step)

BAD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for update in range(1000):
    optimizer.zero_grad()
    for micro in range(4):
        x, y = next(batches)
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()  # <- here
    optimizer.step()
"""

GOOD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for update in range(1000):
    optimizer.zero_grad()
    for micro in range(4):
        x, y = next(batches)
        loss = torch.nn.functional.cross_entropy(model(x), y) / 4
        loss.backward()
    optimizer.step()
"""


_OF_ITEMS = (
    'Sum each loss over its items (`reduction="sum"`) and divide by the number of items in the '
    "whole window: micro-batches that differ in it (a short last one, or items that are ignored or "
    "masked) are not equal parts of it."
)
_EVENS_OUT = frozenset(
    {"Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "Lion", "NAdam", "RAdam", "RMSprop", "Rprop"}
)
"""Optimizers whose updates hardly depend on how large gradients are."""
_FOLLOWS = frozenset({"ASGD", "SGD"})
"""Those whose updates are as much longer as the gradients are."""


def judge(view: View) -> Iterator[Finding]:
    """Find windows whose micro-batches all have the factor 1."""
    yield from distinct(_findings(view))


def _findings(view: View) -> Iterator[Finding | None]:
    for window, step in accumulated(view):
        yield _judge(view, window, step)


def _judge(view: View, window: WindowRecord, step: Step) -> Finding | None:
    found = _size(view, window, step)
    if found is None or not _is_undivided(view, window):
        return None
    size, severity = found
    evened = _kind(view, window) in _EVENS_OUT and not _clips(window)
    if severity is Severity.ERROR and (evened or not _is_mean(view, window)):
        severity = Severity.WARNING  # a sum over the items would be right as it is
    noun = "micro-batch" if step.every or not pieces(window) else "piece"
    backward = window.kept[0]
    start = "" if step.every_written == "literal" else given(view, window, size, noun)
    if severity is Severity.INFO and written(view, window) != "one":
        start = (
            f"if the {size} backwards of this update are for {size} micro-batches, and not for "
            "several tasks, "
        )
    if not _is_mean(view, window) and severity is Severity.WARNING:
        joint = " and " if start.startswith("if ") else ": "
        start = f"if the loss is a mean over its batch{joint}{start.removeprefix('if ')}"
    return report(
        sys.modules[__name__],
        backward,
        f"{start}{_says(view, window, size, noun)}.",
        severity=severity,
        related=[(step, "stepped here")],
        evidence=[*window.kept[1:], step, *window.of(Zero)],
        advice=_OF_ITEMS if any(fact(view, b, "ragged") for b in window.kept) else None,
    )


def _kind(view: View, window: WindowRecord) -> str:
    """Return the class of an optimizer; nothing if it is not known."""
    return str(view.facts.get(window.optimizer, {}).get("type", "")).rpartition(".")[2]


def _clips(window: WindowRecord) -> list[Clip]:
    """Return the clips that look at the size of the gradients."""
    return [clip for clip in window.of(Clip) if not only_measures(clip)]


def _says(view: View, window: WindowRecord, size: int, noun: str) -> str:
    name, kind = quoted([window.optimizer]), _kind(view, window)
    of_mean = f"that of the mean over {counted(size, noun)}"
    limit = next((clip.limit for clip in _clips(window)), None)
    if limit is not None:
        # Where the clip sets in, the update is as long as it would be, and sets in too early.
        return (
            f"the gradient of {name} is {size} times {of_mean}, and clipping it to {limit:g} is "
            f"like clipping the mean to {limit / size:.3g}"
        )
    if kind in _EVENS_OUT and not _clips(window):
        return f"the gradient of {name} is {size} times {of_mean}; {kind} evens out most of that"
    what = "update" if kind in _FOLLOWS else "gradient"
    return f"the {what} of {name} is {size} times {of_mean}"


def _is_mean(view: View, window: WindowRecord) -> bool:
    """Say whether every loss of a window surely is a mean over its items."""
    return all(
        "mean" in (backward.reduction, fact(view, backward, "reduction"))
        for backward in window.kept
    )


def _size(view: View, window: WindowRecord, step: Step) -> tuple[int, Severity] | None:
    """Return the micro-batches that were surely meant as one window, and how sure that is."""
    if view.facts.get("job", {}).get("source") == "watch":
        return _watched_size(view, window, step)
    if step.every is not None and step.every > 1:
        found = sizes(window)
        size = step.every if step.every in found else max(found, default=0)
        # Where nobody has written it down, it may well be 1.
        severity = Severity.ERROR if step.every_written == "literal" else Severity.WARNING
        return (size, if_several(view, window, severity)) if size > 1 else None
    drawn = pieces(window)
    if len(drawn) > 1 and all(are_pieces(view, piece) for piece in drawn):
        size = window.micro_batches
        severity = if_several(view, window, Severity.WARNING)
        return (size, severity) if size > 1 and size == len(drawn) else None
    return None


def _watched_size(view: View, window: WindowRecord, step: Step) -> tuple[int, Severity] | None:
    """Return the same of a running job, where a backward may be one of many losses of a batch."""
    drawn = pieces(window)
    if len(drawn) > 1 and all(_is_tile(view, piece) for piece in drawn) and _is_mean(view, window):
        return (len(drawn), Severity.WARNING) if window.micro_batches == len(drawn) else None
    if step.every is None or step.every < 2:
        return None
    size = micro_batches_of_loader(view, window)
    if size is None:  # no loader says whether these are batches, tasks or scales
        size = window.micro_batches
        return (size, Severity.INFO) if size > 1 and not _are_of_one(view, window) else None
    return (size, Severity.ERROR) if size > 1 else None


def _are_of_one(view: View, window: WindowRecord) -> bool:
    """Say whether the backwards of a running job are evidently for several losses of one batch.

    Each goes into parameters of its own, or nothing was called twice.
    """
    calls = Counter(event.model for event in window.of(Forward))
    called_once = bool(calls) and max(calls.values()) == 1
    return called_once or any(fact(view, backward, "heads") for backward in window.kept)


def _is_tile(view: View, piece: Drawn) -> bool:
    """Say whether a running job has seen patches that are together the image they are cut from."""
    return bool(view.facts.get(piece.loader or "", {}).get("tiled"))


def _is_undivided(view: View, window: WindowRecord) -> bool:
    kept = window.kept
    if any(is_sum(view, backward) or fact(view, backward, "coupled") for backward in kept):
        return False
    if any(fact(view, backward, "returned") for backward in kept):
        return False  # by a model that may well sum up
    return all(is_close(b.factor, 1.0) for b in kept) and is_close(window.factor_sum, len(kept))


def mend(finding: Finding, source: Source) -> Iterator[Fix]:
    """Divide every loss of the window by the number that its gate or its loop names."""
    backwards = evidence(finding, Backward)
    # Whose loss is not to be seen may have summed over its items, and be right as it is.
    is_safe = all(event.reduction == "mean" for event in backwards)
    places = {event.place for event in backwards}
    calls = [source.call_at(place) for place in places]
    backward = source.statement_at(finding.place)
    step = None if backward is None else step_statement(source, finding, backward)
    if backward is None or step is None:
        return
    for size in window_sizes(source, backward, step):
        edits = [None if call is None else divided(source, call, size) for call in calls]
        yield from offer(f"divide the loss by `{size}`", *edits, is_safe=is_safe)


is_mended = divides_more
