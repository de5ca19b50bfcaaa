"""INS401 scheduler-before-step

The scheduler is stepped before the first `optimizer.step()`. Making a scheduler already sets the
first value of its schedule; stepping it before any update replaces that value before anything used
it. The first learning rate of the schedule is skipped and every later one comes one update, or one
epoch, too early. Torch warns about it once per run: "Detected call of `lr_scheduler.step()` before
`optimizer.step()`". It was right before torch 1.1, which is why old code does it.

**Fix.** Step the scheduler after the optimizer: behind `optimizer.step()` if it counts updates, at
the end of the epoch if it counts epochs.

**When it is fine.** If the first value is skipped on purpose, such as a warm-up that starts at
zero, or if the schedule is constant: where the source says so, it is not reported, nor where a
function makes one of several schedules and one of them is such. A step that waits for an epoch
whose number is not in the source may well have had updates before it. `ReduceLROnPlateau` follows a
measured value and schedulers that are given the epoch (`scheduler.step(epoch)`) do not count calls:
none of these is reported. Before torch 1.1 the scheduler came first: a project whose README or
requirements name such a version is left alone.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from instep.rules.finding import Severity
from instep.rules.mending import evidence, loop_apart, statements
from instep.rules.moving import carried, moves
from instep.rules.reading import distinct, is_for_torch_before, is_managed
from instep.rules.schedulers import counts_calls
from instep.rules.view import report, spelled
from instep.trace import Assumed, EpochEnd, Opaque, Schedule, Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.rules.finding import Finding, Fix
    from instep.rules.source import Source
    from instep.rules.view import View

CODE = "INS401"
NAME = "scheduler-before-step"
SUMMARY = "The scheduler is stepped before the optimizer, so the first learning rate is skipped."
SEVERITY = Severity.WARNING
NEEDS = (Schedule, Step)

BAD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30)
for epoch in range(90):
    scheduler.step()  # <- here
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
"""

GOOD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30)
for epoch in range(90):
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    scheduler.step()
"""


def judge(view: View) -> Iterator[Finding]:
    """Find schedulers whose first step comes before the first of their optimizer."""
    if is_managed(view) or is_for_torch_before(view, 1, 1):
        return  # schedulers came first then
    first: dict[tuple[str, str | None], int] = {}
    for at, event in enumerate(view.events):
        if isinstance(event, Schedule) and event.optimizer is not None:
            first.setdefault((event.optimizer, event.scheduler), at)
    yield from distinct(_judge(view, at) for at in first.values())


def _judge(view: View, at: int) -> Finding | None:
    schedule = view.events[at]
    if not isinstance(schedule, Schedule) or not _is_judged(view, schedule):
        return None
    if not all(_is_early(view, at, schedule.optimizer)) or _is_after_warm_up(view, schedule):
        return None
    after = view.events[at + 1 :]
    own = (e for e in after if isinstance(e, Step) and e.optimizer == schedule.optimizer)
    step = next(own, None)
    if step is None:
        return None
    early = after[: after.index(step)]
    if any(isinstance(e, Schedule) and e.scheduler == schedule.scheduler for e in early):
        return None  # it counts micro-batches, and may well be meant to
    # A loop that brings a resumed schedule up to date is over before the training begins.
    later = after[after.index(step) :]
    if not any(isinstance(e, Schedule) and e.place == schedule.place for e in later):
        return None
    name, optimizer = spelled(schedule.scheduler or "scheduler"), spelled(schedule.optimizer or "")
    return report(
        sys.modules[__name__],
        schedule,
        f"`{name}` is stepped before the first update of `{optimizer}`, "
        "so the first value of the schedule is skipped.",
        related=[(step, "first update here")],
        evidence=[step],
    )


def _is_judged(view: View, schedule: Schedule) -> bool:
    facts = view.facts.get(schedule.scheduler or "", {})
    return counts_calls(view, schedule) and not facts.get("skippable")


def _is_after_warm_up(view: View, schedule: Schedule) -> bool:
    """Say whether a schedule begins when steps of a warm-up are over, which were updates."""
    return schedule.place is not None and any(
        event.place is not None
        and event.place.function == schedule.place.function
        and event.place.line < schedule.place.line
        and "warm" in event.condition.lower()
        and not {"<", ">"}.isdisjoint(event.condition)
        for event in view.trace.of(Assumed)
    )


def _is_early(view: View, at: int, optimizer: str | None) -> Iterator[bool]:
    """Say of each event before the schedule whether it leaves the schedule early."""
    for event in view.events[:at]:
        match event:
            case Step():
                yield event.optimizer not in {optimizer, None}
            case Opaque():
                yield event.optimizers is not None and optimizer not in event.optimizers
            case EpochEnd(of=None):
                # At the end of an epoch in which this optimizer had its turn off, it is in order.
                yield False


def mend(finding: Finding, source: Source) -> Iterator[Fix]:
    """Move the schedule behind the update."""
    schedule = source.statement_at(finding.place)
    if schedule is None:
        return
    for step in statements(source, evidence(finding, Step)):
        if source.scope(step) is not source.scope(schedule):
            continue  # that function may be called per batch, and this one per epoch
        # A scheduler that counts epochs stays out of the loop over the batches.
        at = loop_apart(source, step, next(carried(source, schedule, step))) or step
        yield from moves(source, "step the scheduler after the update", schedule, at, after=True)
