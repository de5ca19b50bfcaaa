"""INS202 leftover-window

The number of batches in an epoch is rarely a multiple of the window. The micro-batches after the
last full window are backpropagated, but no step follows before the epoch ends. Either their
gradients are cleared when the next epoch begins, and that work is lost; or they stay in `.grad` and
leak into the first window of the next epoch, whose update is then made of too many micro-batches.

The same rule reports a last window that is stepped but divided as if it were full: with 2
micro-batches divided by 4, its update is half as long as it should be.

**Fix.** Also step at the last batch, and divide by the number of micro-batches that the window
really has:

    size = min(n, len(loader) - i // n * n)
    loss = criterion(model(x), y) / size
    loss.backward()
    if (i + 1) % n == 0 or i + 1 == len(loader):

What a log multiplies by `n` to show the whole loss has to be multiplied by `size` then:
`running += loss.item() * size`.

A counter that runs on over epochs, so that a window may span two of them, is right as well.

**When it is fine.** If the loader's length is a multiple of the window, for example because the
data set was cut to fit, nothing is left over. Nor is anything while the window is one batch: where
its size is an option that is 1 unless somebody gives it, this is a note. A running job shows the
end of an epoch by its `DataLoader`: of a loop over a list or a range `instep watch` does not know
where it ends, so there only source shows the mistake.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from instep.rules.accumulation import (
    closes_epoch,
    count_batches,
    counted,
    is_close,
    is_end,
    is_mixed,
    is_sum,
    judged,
    quoted,
    sizes,
    trained,
    updates,
    used_by_others,
)
from instep.rules.finding import Fix, Severity
from instep.rules.mending import evidence, statements
from instep.rules.reading import distinct
from instep.rules.shares import divides_as_well
from instep.rules.view import report
from instep.rules.window_mends import close_last_window
from instep.trace import Backward, Drawn, EpochEnd, Step, Zero, windows_of
from instep.trace.gradients import clears, count_micro_batches
from instep.trace.plain import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from instep.rules.finding import Finding
    from instep.rules.source import Source
    from instep.rules.view import View
    from instep.trace import Event, WindowRecord

CODE = "INS202"
NAME = "leftover-window"
SUMMARY = "The last micro-batches of an epoch are not in a window of their own."
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
        if (i + 1) % 4 == 0:
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


_SHORT = "Divide by the number of micro-batches that the window really has: the last one has fewer."


@dataclass(frozen=True)
class _Gated:
    """An optimizer whose step is gated, with what the rule reads again and again."""

    view: View
    optimizer: str
    windows: tuple[WindowRecord, ...]
    gate: Step
    loaders: frozenset[str | None]

    @property
    def every(self) -> int:
        return self.gate.every or 0


def judge(view: View) -> Iterator[Finding]:
    """Find micro-batches that no update has used when their epoch ends, and short windows."""
    yield from distinct(_findings(view))


def _findings(view: View) -> Iterator[Finding | None]:
    if not any((step.every or 0) > 1 for step in view.trace.of(Step)):
        return
    loaders = trained(view)
    for optimizer, windows in judged(view):
        others = used_by_others(view, optimizer)
        gate = next((step for _, step in updates(windows) if (step.every or 0) > 1), None)
        if gate is None or any(is_mixed(window, others) for window in windows):
            continue
        gated = _Gated(view, optimizer, windows, gate, loaders)
        uncleared = _uncleared(gated)
        if not any(_own(whole, others) > 1 for whole in uncleared.values()):
            continue  # what the gate closes begins behind it: nothing is accumulated
        if any(view.facts.get(str(loader), {}).get("bounded") for loader in loaders):
            continue  # where the loop ends is not known, and it may end where a window does
        for window in windows:
            whole = uncleared.get(_closing(window))
            if window.certain and whole is not None and whole.leftover:
                yield _leftover(gated, window, whole)
        yield from _short(gated)


def _own(window: WindowRecord, others: frozenset[int]) -> int:
    """Count the micro-batches whose loss is this optimizer's own."""
    events = (e for e in window.events if not (isinstance(e, Backward) and id(e) in others))
    return count_micro_batches(events)


def _closing(window: WindowRecord) -> int | None:
    return None if window.closed_by is None else id(window.events[-1])


def _uncleared(gated: _Gated) -> dict[int | None, WindowRecord]:
    """Return the windows as if nothing had ever been cleared, by what closed them.

    Micro-batches that were cleared too early wait for a step all the same.
    """
    events = [event for event in gated.view.events if not isinstance(event, Zero)]
    return {_closing(window): window for window in windows_of(events, gated.optimizer)}


def _leftover(gated: _Gated, window: WindowRecord, whole: WindowRecord) -> Finding | None:
    events = window.events
    first = next((at for at, event in enumerate(events) if isinstance(event, Backward)), None)
    ends = (at for at in range(first or 0, len(events)) if is_end(events[at], gated.loaders))
    end = next(ends, None)
    if first is None or end is None or _is_never_used(gated, events[first:end]):
        return None
    later = events[end + 1 :]
    clear = next((event for event in later if clears(event)), None)
    leak = None
    if window.closed_by == "step":
        if not any(isinstance(event, Backward) for event in later):
            return None  # a step after the loop
        is_once = clear is not None and sum(e.place == clear.place for e in events) == 1
        if gated.every in sizes(whole) and not is_once:
            return None  # the count runs on over epochs
        leak = None if clear else (min if _in_batches(gated) else max)(sizes(window))
    elif window.closed_by is not None or _epochs(gated) > 1:
        return None
    elif gated.view.facts.get("job", {}).get("running"):
        return None  # its step may come yet
    elif clear is None and _is_repeated(gated, events[end]):
        leak = _left(gated, whole) + gated.every
    return _report(gated, window, events[end], _left(gated, whole), clear, leak=leak)


def _is_never_used(gated: _Gated, left: Sequence[Event]) -> bool:
    """Say whether what is left over is of a kind that no update uses, as the loss of a generator
    in the gradients of its discriminator.
    """
    used = {backward.place for window, _ in updates(gated.windows) for backward in window.kept}
    kinds = {event.place for event in left if isinstance(event, Backward)}
    return bool(used) and used.isdisjoint(kinds)


def _in_batches(gated: _Gated) -> bool:
    """Say whether the gate counts batches that are backpropagated in pieces."""
    return any(
        count_batches(window.events) == gated.every != window.micro_batches
        for window, _ in updates(gated.windows)
    )


def _left(gated: _Gated, whole: WindowRecord) -> int:
    """Count what was left, as the gate counts."""
    ends = (at for at, event in enumerate(whole.events) if is_end(event, gated.loaders))
    batches = count_batches(whole.events[: next(ends, None)])
    return batches if batches is not None and _in_batches(gated) else whole.leftover


def _epochs(gated: _Gated) -> int:
    return sum(is_end(event, gated.loaders) for event in gated.view.events)


def _is_repeated(gated: _Gated, end: Event) -> bool:
    """Say whether another epoch would begin as this one did, with nothing cleared before it."""
    loader = end.loader if isinstance(end, EpochEnd) else None
    if loader is None or not gated.view.facts.get(loader, {}).get("repeated"):
        return False
    for event in gated.view.events:
        if isinstance(event, Drawn) and event.loader == loader:
            return True
        if isinstance(event, Zero):
            return False
    return False


def _report(
    gated: _Gated,
    window: WindowRecord,
    end: Event,
    left: int,
    clear: Event | None,
    *,
    leak: int | None,
) -> Finding | None:
    loader = end.loader if isinstance(end, EpochEnd) else None
    batches = end.batches if isinstance(end, EpochEnd) else None
    length = gated.view.facts.get(loader, {}).get("length") if loader else None
    is_sure = isinstance(length, int) and gated.gate.every_written == "literal"
    is_read = gated.view.facts.get("job", {}).get("source") == "check"
    if is_read and not is_sure:
        message = _suppose(gated, batches, left, leak=leak)
    else:
        seen = f"with {batches} batches and a gate of {gated.every}, "
        shown = seen if batches and not is_sure else ""
        message = shown + _tell(gated, batches, left, leak=leak)
    return report(
        sys.modules[__name__],
        gated.gate,
        message,
        severity=_severity(gated.gate, is_sure=is_sure),
        related=[
            (window.backwards[0], "the last micro-batches are backpropagated here"),
            (clear, "cleared here"),
        ],
        evidence=[*window.backwards, *(zero for w in gated.windows for zero in w.of(Zero))],
    )


def _tell(gated: _Gated, batches: int | None, left: int, *, leak: int | None) -> str:
    last = f"the last {left} of {counted(batches)}" if batches else f"the last {counted(left)}"
    if leak is not None:
        return (
            f"{last} leak into the first update of the next epoch, "
            f"which holds {leak} instead of {gated.every}."
        )
    return f"{last} never {'reach' if left > 1 or batches else 'reaches'} an update."


def _suppose(gated: _Gated, batches: int | None, left: int, *, leak: int | None) -> str:
    """Say the same of what the source does not write: the numbers are an example, and said to be.

    In an epoch of another length there may be nothing left over.
    """
    written = gated.gate.every_written
    number = "the gate's number" if written in {"one", "nowhere"} else str(gated.every)
    number += ", the gate's default" if written == "default" else ""
    what = "never reach an update"
    example = f"{left} of {batches}, for example"
    if written in {"one", "nowhere"}:
        example = (
            f"with {batches} batches and a gate of {gated.every}, for example, the last {left}"
        )
    if leak is not None:
        what = "leak into the first update of the next"
        example += f", and it holds {leak} instead of {gated.every}"
    return (
        f"if the number of batches is not a multiple of {number}, the last micro-batches of an "
        f"epoch {what}{'' if batches is None else f' ({example})'}."
    )


def _severity(gate: Step, *, is_sure: bool) -> Severity:
    if is_sure:
        return Severity.ERROR
    return Severity.INFO if gate.every_written == "one" else Severity.WARNING


def _short(gated: _Gated) -> Iterator[Finding | None]:
    """Find last windows that are stepped, but divided as if they were full."""
    full = [
        window
        for window, _ in updates(gated.windows)
        if gated.every in sizes(window) and is_close(window.factor_sum, 1.0)
    ]
    for window, step in updates(gated.windows):
        size, *more = sizes(window)
        if more or not full or not 0 < size < gated.every:
            continue
        if any(is_sum(gated.view, backward) for backward in window.kept):
            continue
        if not _is_last(gated, window):
            continue
        if is_close(window.factor_sum, size / gated.every):
            lengths = (gated.view.facts.get(str(each), {}).get("length") for each in gated.loaders)
            is_read = gated.view.facts.get("job", {}).get("source") == "check"
            is_sure = gated.gate.every_written == "literal" and any(lengths)
            say = "with, say," if is_read and not is_sure else "with"
            yield report(
                sys.modules[__name__],
                window.kept[0],
                f"the last window of an epoch is divided like a full one: {say} {counted(size)} "
                f"instead of {gated.every}, its update of {quoted([gated.optimizer])} is "
                f"{size}/{gated.every} of their mean.",
                severity=_severity(gated.gate, is_sure=False),
                related=[(step, "stepped here")],
                evidence=[*window.kept[1:], gated.gate, step],
                advice=_SHORT,
            )


def _is_last(gated: _Gated, window: WindowRecord) -> bool:
    for event in reversed(window.events):
        if isinstance(event, Backward):
            break
        if is_end(event, gated.loaders):
            return True
    return closes_epoch(gated.windows, window.index, gated.loaders)


def mend(finding: Finding, source: Source) -> Iterator[Fix]:
    """Step after the last batch as well, and divide the short window by its own size."""
    # One more update in every epoch is one more than a schedule may have been made for, and
    # OneCycleLR refuses that.
    is_safe = "OneCycleLR" not in source.text
    for step in statements(source, evidence(finding, Step)):
        for fix in close_last_window(source, step):
            more = "" if is_safe else "; OneCycleLR then needs one more step for each epoch"
            yield Fix(f"{fix.title}{more}", fix.edits, is_safe=is_safe and fix.is_safe)


is_mended = divides_as_well
