"""INS101 missing-zero-grad

PyTorch adds into `.grad`. Where nothing clears it between two updates, each update also contains
the gradients that the updates before it have used already. The first batch is in every update of
the run, the steps grow and point into the past: the loss oscillates or diverges, as it would with a
momentum that never fades.

**Fix.** Clear once per update: `optimizer.zero_grad()` before the backward, or right after
`optimizer.step()`. Where the step stands behind a gate, the clear belongs behind the same gate.
With several optimizers, each needs its own.

**When it is fine.** Nothing has to be cleared where gradients are not kept in `.grad`, as with
`torch.distributed.autograd`, or where a framework clears them; neither is reported.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from instep.rules.accumulation import quoted
from instep.rules.finding import Severity
from instep.rules.leftovers import leftovers
from instep.rules.mending import evidence, meeting, optimizer_name
from instep.rules.moving import inserts, moves
from instep.rules.patches import piecewise
from instep.rules.reading import distinct, measured
from instep.rules.stale import Stale, stale_updates
from instep.rules.view import report
from instep.trace import Backward, Created, Drawn, Forward, Step, Zero

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.rules.finding import Finding, Fix
    from instep.rules.leftovers import Leftover
    from instep.rules.source import Source
    from instep.rules.view import View
    from instep.trace import Place

CODE = "INS101"
NAME = "missing-zero-grad"
SUMMARY = "Gradients are not cleared between two updates."
SEVERITY = Severity.ERROR
MILDEST = Severity.WARNING

BAD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()  # <- here
    optimizer.step()
"""

GOOD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""


def judge(view: View) -> Iterator[Finding]:
    """Find updates that contain the gradients of earlier ones."""
    found: dict[Place | None, list[Stale]] = {}
    if view.facts.get("job", {}).get("partial"):
        return  # whoever calls this may clear
    for stale in stale_updates(view):
        if stale.mistaken is None and not _is_per_batch(view, stale):
            found.setdefault(stale.backward.place, []).append(stale)
    reports = [_report(view, same) for same in found.values()]
    reports += [_report_left(view, left) for left in leftovers(view)]
    yield from distinct(reports)


def _report_left(view: View, left: Leftover) -> Finding | None:
    clears = (z for z in view.trace.of(Zero) if left.step and left.step.optimizer in _of(z))
    return report(
        sys.modules[__name__],
        left.event,
        left.message,
        severity=left.severity,
        related=[
            (left.step, "stepped here"),
            (left.other, "made here" if isinstance(left.other, Created) else "added here"),
            (next(clears, None), "cleared here"),
        ],
    )


def _of(zero: Zero) -> tuple[str, ...]:
    return zero.optimizers or ()


def _is_per_batch(view: View, stale: Stale) -> bool:
    """Say whether patches share one clear: then it is the step that stands in the wrong place."""
    return not stale.is_never_cleared and any(
        part.optimizer == stale.optimizer and part.is_patches for part in piecewise(view)
    )


def _is_known(view: View, optimizer: str) -> bool:
    """Say whether it is known what an optimizer holds, where it is made: else, what clears it."""
    facts = view.facts.get(optimizer, {})
    return not facts.get("written") or facts.get("models") is not None


def _goes_twice_through_one_graph(view: View, stale: Stale) -> bool:
    """Say whether a model has not run since the step before: where the graph holds its weights,
    PyTorch stops at the second backward, because the step has changed them.
    """
    if view.facts.get("job", {}).get("source") != "check" or not view.trace.of(Forward):
        return False  # what runs has not been stopped
    ran = False
    for event in view.events:
        if event is stale.backward:
            break
        if isinstance(event, Forward):
            ran = True
        elif isinstance(event, Step) and event.optimizer == stale.optimizer:
            ran = False
    return not ran


def _report(view: View, same: list[Stale]) -> Finding | None:
    first = same[0]
    # Written out one after the other, it may be a test or a demonstration; and whoever calls again
    # what makes one update may clear.
    job = view.facts.get("job", {})
    sketched = bool(job.get("sketch") or job.get("single"))
    repeats = sum(b.place == first.backward.place for b in view.trace.of(Backward)) > 1
    function = first.backward.place.function if first.backward.place is not None else None
    if not repeats and (function or "").rpartition(".")[2].startswith("test"):
        return None  # a test steps to see something change, whatever is in the gradients
    sure = all(_is_known(view, stale.optimizer) for stale in same)
    sure = sure and not _goes_twice_through_one_graph(view, first)
    name = quoted(stale.optimizer for stale in same)
    number = _number(view, first)
    if all(stale.is_never_cleared for stale in same):
        verb = "are" if " and " in name else "is"  # several may have one name
        message = (
            f"{name} {verb} never cleared: every update also contains the gradients of all "
            f"earlier batches{number}."
        )
    else:
        message = (
            f"{name} steps more often than it is cleared: an update also contains the gradients "
            f"that the updates before it have used{number}."
        )
    clears = (zero for zero in view.trace.of(Zero) if first.optimizer in (zero.optimizers or ()))
    clear = next(clears, None)
    return report(
        sys.modules[__name__],
        first.backward,
        message,
        severity=Severity.ERROR if repeats and not sketched and sure else Severity.WARNING,
        related=[(first.step, "stepped here"), (clear, "cleared only here")],
        evidence=[
            *first.window.kept,
            *(stale.step for stale in same),
            *([] if clear is None else [clear]),
        ],
    )


def _number(view: View, stale: Stale) -> str:
    """Say how much was in the latest update, where a running job has counted it."""
    counts = (
        event.value
        for event in measured(view, "backwards-in-gradient")
        if event.optimizers == (stale.optimizer,)
    )
    count = next(counts, None)
    if count is None:
        return ""
    drawn = sum(event.of is None for event in stale.window.of(Drawn))
    # One backward for each batch: then people count batches.
    what = "batches" if drawn == len(stale.window.kept) else "backwards"
    # Some may have been there before anybody counted.
    is_least = stale.is_never_cleared and view.facts.get(stale.optimizer, {}).get("filled")
    least = "at least " if is_least else ""
    return f" (gradients from {least}{count:,.0f} {what} were in the latest one)"


def mend(finding: Finding, source: Source) -> Iterator[Fix]:
    """Clear behind a gated step, or else before the first backward that the update is made of."""
    backward = source.statement_at(finding.place)
    steps = [(step, optimizer_name(source, step.place)) for step in evidence(finding, Step)]
    names = dict.fromkeys(name for _, name in steps if name is not None)
    if backward is None or not names or None in dict(steps).values():
        return
    step = source.statement_at(steps[-1][0].place)
    title = f"clear {' and '.join(f'`{name}`' for name in names)} once per update"
    code = "\n".join(f"{name}.zero_grad()" for name in names)
    met = None if step is None else meeting(source, backward, step)
    if step is not None and (met is None or (met[1] is not step and len(names) == 1)):
        yield from inserts(source, title, code, step, backward, after=True)
    if met is not None:
        for clear in evidence(finding, Zero):
            yield from moves(source, title, source.statement_at(clear.place), met[0])
        yield from inserts(source, title, code, met[0])
    yield from inserts(source, title, code, step, backward, after=True)
