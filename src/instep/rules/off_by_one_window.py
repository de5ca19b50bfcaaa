"""INS204 off-by-one-window

The gate that guards the step counts from the wrong end, so windows do not hold the number of
micro-batches that the loss is divided by. `i % 4 == 0` with `i` from 0 is true at the very first
micro-batch: the first update is made of one micro-batch, divided by four. With `i > 0 and` before
it, the first window holds five. `count > 4` where `count >= 4` was meant makes every window hold
five. Each of these updates has the wrong length, and windows no longer end where the epoch does.

**Fix.** Count the micro-batches that are done, the present one included:
`if (i + 1) % 4 == 0` where `i` starts at 0, `if count >= 4` where `count` was just raised.

**When it is fine.** A gate that is not about accumulation, such as one update of the actor for
every two of the critic, has its backward behind the gate as well, and is not reported. Where the
gate's number is an option that is 1 unless somebody gives it, this is a note.

**In a running job** nobody sees what a gate compares with. There it is told that all windows hold
one micro-batch more than their losses are divided by, if that is three or more.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from instep.rules.accumulation import (
    closes_epoch,
    counted,
    is_close,
    is_end,
    is_mixed,
    judged,
    sizes,
    trained,
    updates,
    used_by_others,
)
from instep.rules.finding import Severity
from instep.rules.reading import distinct, since_clear
from instep.rules.view import report
from instep.rules.window_mends import count_from_one
from instep.trace import Backward, Step, Zero
from instep.trace.gradients import count_micro_batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.rules.finding import Finding, Fix
    from instep.rules.source import Source
    from instep.rules.view import View
    from instep.trace import WindowRecord

CODE = "INS204"
NAME = "off-by-one-window"
SUMMARY = "The gate counts from the wrong end: windows hold one micro-batch too many or too few."
SEVERITY = Severity.ERROR
MILDEST = Severity.INFO
NEEDS = (Backward, Step)

BAD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(10):
    optimizer.zero_grad()
    for i, (x, y) in enumerate(loader):
        loss = torch.nn.functional.cross_entropy(model(x), y) / 4
        loss.backward()
        if i % 4 == 0:
            optimizer.step()  # <- here
            optimizer.zero_grad()
"""

GOOD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(10):
    optimizer.zero_grad()
    for i, (x, y) in enumerate(loader):
        size = min(4, len(loader) - i // 4 * 4)
        loss = torch.nn.functional.cross_entropy(model(x), y) / size
        loss.backward()
        if (i + 1) % 4 == 0 or i + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()
"""


_SURE = 3
"""Windows that show the same."""
_LEAST = 3
"""What losses are divided by, and not weighed with, at least."""


def judge(view: View) -> Iterator[Finding]:
    """Find gated steps whose windows inside an epoch do not have the size of the gate."""
    if not any((step.every or 0) > 1 for step in view.trace.of(Step)):
        return
    loaders = trained(view)
    yield from distinct(
        _judge(view, optimizer, windows, loaders) for optimizer, windows in judged(view)
    )


def _judge(
    view: View, optimizer: str, windows: tuple[WindowRecord, ...], loaders: frozenset[str | None]
) -> Finding | None:
    others = used_by_others(view, optimizer)
    seen: list[tuple[int, WindowRecord, Step]] = []
    for window, step in updates(windows):
        if (step.every or 0) < 2 or not window.kept:
            continue
        if is_mixed(window, others):
            return None
        if _crosses(window, loaders):
            continue
        size = _size(window, step)
        if size is None:
            return None
        if size < (step.every or 0) and closes_epoch(windows, window.index, loaders):
            continue  # what is left of the epoch, on purpose
        seen.append((size, window, step))
    if all(len(window.kept) == 1 for _, window, _ in seen) and any(w.lost for _, w, _ in seen):
        return None  # cleared before every backward: others have their turn in between
    off = _off([(size, step.every or 0) for size, _, step in seen])
    if off is None:
        return _divided_by_fewer(view, seen)
    if _divided_by_theirs(seen):
        return None  # the gate is one less than the window, and whoever wrote it knows
    _, window, step = next(entry for entry in seen if entry[0] == off)
    return report(
        sys.modules[__name__],
        step,
        f"{_given(step)}{_message([size for size, *_ in seen], off, step.every or 0)}"
        f"{_effect([size for size, *_ in seen], window, step)}.",
        severity=_severity(step),
        related=[(window.kept[0], "the backward of the window")],
        evidence=[*window.kept, *(zero for w in windows for zero in w.of(Zero))],
    )


def _divided_by_theirs(seen: list[tuple[int, WindowRecord, Step]]) -> bool:
    """Say whether all windows hold as many as their losses are divided by."""
    return len({size for size, *_ in seen}) == 1 and all(
        size > 1 and is_close(backward.factor, 1 / size)
        for size, window, _ in seen
        for backward in window.kept
    )


def _divided_by_fewer(view: View, seen: list[tuple[int, WindowRecord, Step]]) -> Finding | None:
    """Find windows of a running job that all hold one more than their losses are divided by.

    A job does not show what its gate compares with. A factor of a half is often a weight.
    """
    if view.facts.get("job", {}).get("source") != "watch" or len(seen) < _SURE:
        return None
    size, window, step = seen[0]
    kept = [backward for _, each, _ in seen for backward in each.kept]
    if size != step.every or size - 1 < _LEAST or any(other != size for other, *_ in seen):
        return None
    if not all(is_close(b.factor, 1 / (size - 1)) and b.reduction == "mean" for b in kept):
        return None
    return report(
        sys.modules[__name__],
        step,
        f"every window holds {counted(size)}, but each loss is divided by {size - 1}: the update "
        f"is {size}/{size - 1} of their mean.",
        severity=Severity.WARNING,
        related=[(window.kept[0], "the backward of the window")],
        evidence=[*window.kept],
    )


def _given(step: Step) -> str:
    """Say what the gate compares with, and that it is supposed where the source does not write it.

    In a running job, it is what has been seen.
    """
    match step.every_written:
        case "literal":
            return ""
        case "default":
            return f"with a gate of {step.every}, which is the default, "
        case "one" | "nowhere":
            return f"if the gate is, say, {step.every}, "
    return f"with a gate of {step.every}, "


def _severity(step: Step) -> Severity:
    if step.every_written == "literal":
        return Severity.ERROR
    return Severity.INFO if step.every_written == "one" else Severity.WARNING


def _crosses(window: WindowRecord, loaders: frozenset[str | None]) -> bool:
    """Say whether an epoch ends between the backwards of a window and its step."""
    events = since_clear(window)
    first = next(at for at, event in enumerate(events) if isinstance(event, Backward))
    return any(is_end(event, loaders) for event in events[first:])


def _size(window: WindowRecord, step: Step) -> int | None:
    """Return the size of a window in what its gate counts; None if that is not clear."""
    found = sizes(window)
    # What is cleared too early was counted all the same, and is another rule's to tell.
    used = {backward.place for backward in window.kept}
    is_same = any(backward.place in used for backward in window.lost)  # not a critic's loss
    if step.every in found or (is_same and count_micro_batches(window.events) == step.every):
        return step.every
    return found.pop() if len(found) == 1 else None


def _off(seen: list[tuple[int, int]]) -> int | None:
    """Return the size that windows have in place of their gate's; None if they are right."""
    wrong = [(size, every) for size, every in seen if size != every]
    found = [size for size, _ in seen]
    if not wrong or len(set(wrong)) > 1 or max(found) == 1:  # all 1: no accumulation
        return None
    off, every = wrong[0]
    if off not in {1, every - 1, every + 1} or (off == 1 and every not in found):
        return None
    return off if found[0] == off or set(found[1:]) == {off} else None


def _message(found: list[int], off: int, every: int) -> str:
    if found[0] != off:
        return f"every window after the first holds {counted(off)} instead of {every}"
    if every in found:
        return f"the first window holds {counted(off)} and those after it hold {every}"
    if len(found) > 1:
        return f"every window holds {counted(off)} instead of {every}"
    return f"the first window holds {counted(off)} instead of {every}"


def _effect(found: list[int], window: WindowRecord, step: Step) -> str:
    """Say what that makes of the update, where its losses are divided by the size of the gate."""
    size, every = _size(window, step), step.every or 0
    if not size or not all(is_close(backward.factor, 1 / every) for backward in window.kept):
        return ""
    is_first = found[0] == size and every in found
    which = "the first update" if is_first else "its update"
    return f", so {which} is made of {counted(size)} divided by {every}"


def mend(finding: Finding, source: Source) -> Iterator[Fix]:
    """Count the batch that the gate stands behind."""
    step = source.statement_at(finding.place)
    if step is not None:
        yield from count_from_one(source, step)
