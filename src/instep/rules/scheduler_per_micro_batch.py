"""INS402 scheduler-per-micro-batch

Gradients are accumulated over several micro-batches, but the scheduler is stepped at every one of
them. A schedule whose length is given in updates then runs as many times too fast as a window has
micro-batches. With four, a warm-up of 1,000 updates is over after 250, and the learning rate has
decayed to its end when a quarter of the training is done; a cosine then rises again, and a
one-cycle schedule raises an error.

**Fix.** Step the scheduler once per update: right behind `optimizer.step()`, inside the same gate.
Then count its length in updates as well, wherever it is made: `total_steps`, `T_max` or the steps
of a warm-up that were given as `epochs * len(loader)` become `epochs * ceil(len(loader) / n)`, or
the schedule ends with most of its way to go.

**When it is fine.** If the length of the schedule was itself given in micro-batches
(`total_steps=epochs * len(loader)`), it ends in the right place. Stepping it once per update with
`total_steps=updates` says the same with fewer surprises. Schedulers that a framework has prepared
(`accelerator.prepare(scheduler)`) skip the micro-batches themselves and are not reported.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

from instep.rules.accumulation import given, pieces
from instep.rules.finding import Severity
from instep.rules.mending import evidence, statements
from instep.rules.moving import moves
from instep.rules.reading import distinct, is_managed, sure_size
from instep.rules.schedulers import may_count_calls
from instep.rules.view import report, spelled
from instep.trace import Backward, Schedule, Step

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from instep.rules.finding import Finding, Fix
    from instep.rules.source import Source
    from instep.rules.view import View
    from instep.trace import WindowRecord

CODE = "INS402"
NAME = "scheduler-per-micro-batch"
SUMMARY = "The scheduler is stepped at every micro-batch, so the schedule runs too fast."
SEVERITY = Severity.WARNING
MILDEST = Severity.INFO
NEEDS = (Schedule, Step)

BAD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=num_updates)
for update in range(num_updates):
    for micro in range(4):
        x, y = next(batches)
        loss = torch.nn.functional.cross_entropy(model(x), y) / 4
        loss.backward()
        scheduler.step()  # <- here
    optimizer.step()
    optimizer.zero_grad()
"""

GOOD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=num_updates)
for update in range(num_updates):
    for micro in range(4):
        x, y = next(batches)
        loss = torch.nn.functional.cross_entropy(model(x), y) / 4
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    scheduler.step()
"""


def judge(view: View) -> Iterator[Finding]:
    """Find schedulers that move on about as often as there are micro-batches."""
    if not is_managed(view):
        for optimizer, windows in view.windows.items():
            closed = [window for window in windows if window.closed_by == "step"]
            if closed and not view.is_opaque(optimizer):
                yield from distinct(_judge(view, closed, windows))


def _judge(
    view: View, closed: Sequence[WindowRecord], windows: Sequence[WindowRecord]
) -> Iterator[Finding | None]:
    if any(backward.optimizers is None for window in windows for backward in window.backwards):
        return
    # The short window at the end of an epoch says nothing about the size that was meant.
    sizes = Counter(window.micro_batches for window in closed)
    size = sizes.most_common(1)[0][0]
    done = sum(window.micro_batches for window in windows)
    moves: dict[tuple[str | None, object], list[Schedule]] = {}
    went: set[object] = set()  # schedulers that moved since the last backward: a fast-forward
    for event in (event for window in windows for event in window.events):
        if isinstance(event, Backward):
            went.clear()
        elif isinstance(event, Schedule) and event.scheduler not in went:
            went.add(event.scheduler)
            if event.optimizer is not None and may_count_calls(view, event):
                moves.setdefault((event.scheduler, event.place), []).append(event)
    for events in moves.values():
        horizon = view.facts.get(events[0].scheduler or "", {}).get("horizon")
        if horizon == "batches" and _is_cut(closed[0]):
            horizon = "updates"  # one per batch, however many pieces that has
        often = size > 1 and len(events) > 1 and len(events) >= 0.75 * done
        if often and horizon != "batches":
            # Without a length nobody knows what the schedule was meant to count.
            severity = Severity.WARNING if horizon == "updates" else Severity.INFO
            yield _report(view, closed, size, events[0], severity)


def _is_cut(window: WindowRecord) -> bool:
    """Say whether the micro-batches are pieces of batches that are drawn around them."""
    cut = pieces(window)
    return bool(cut) and all(piece.of != "loop" for piece in cut)


def _report(
    view: View,
    closed: Sequence[WindowRecord],
    size: int,
    schedule: Schedule,
    severity: Severity,
) -> Finding | None:
    window = next(window for window in closed if window.micro_batches == size)
    # A number that is not written is an example, and said to be one.
    start = "" if sure_size(view, window) else given(view, window, size)
    name = spelled(schedule.scheduler or "scheduler")
    return report(
        sys.modules[__name__],
        schedule,
        f"{start}`{name}` is stepped {size} times per update of `{spelled(window.optimizer)}`, "
        f"so a schedule that counts updates runs {size} times too fast.",
        severity=severity,
        related=[(window.steps[0], "updated here"), (window.kept[-1], "backward here")],
        evidence=[window.steps[0], *window.kept],
    )


def mend(finding: Finding, source: Source) -> Iterator[Fix]:
    """Move the schedule to where the update is."""
    schedule = source.statement_at(finding.place)
    # Without a length in updates it may be meant to count micro-batches.
    is_safe = finding.severity > Severity.INFO
    title = "step the scheduler once per update"
    if not is_safe:
        title += ", and then count its length in updates where it is made"
    for step in statements(source, evidence(finding, Step)):
        yield from moves(source, title, schedule, step, after=True, is_safe=is_safe)
