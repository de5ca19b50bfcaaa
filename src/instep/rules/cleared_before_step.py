"""INS102 cleared-before-step

Gradients are cleared after a backward and before the step that should have used them. What was
cleared never reaches the weights: with a clear right before the step the update is made of
nothing, and with a clear at every micro-batch of a window only the last micro-batch counts. The
loop runs, and learns from a fraction of its data.

**Fix.** Clear once per update: right after the step, or before the first backward of the window.
Where the step stands behind a gate, the clear belongs behind the same gate. Where it stands after
a loop over patches or micro-batches, the clear belongs before that loop.

**When it is fine.** Gradients that were only meant to be looked at, as in an attack on the input or
a probe of one loss, are cleared on purpose. Clearing what a generator's loss left in the
discriminator is right too, and is not reported. A clear at every micro-batch is a note where the
window's size is an option that is 1 unless somebody gives it, and a warning where nothing says
what it is.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from instep.rules.accumulation import (
    counted,
    is_close,
    judged,
    quoted,
    updates,
    used_by_others,
)
from instep.rules.deletion import delete
from instep.rules.finding import Severity
from instep.rules.mending import evidence, loop_apart, offer, step_statement
from instep.rules.moving import carried, moves
from instep.rules.reading import distinct, if_several, is_part, names
from instep.rules.view import report
from instep.trace import Backward, Drawn, EpochEnd, Forward, GradEdited, GradRead, Step
from instep.trace.gradients import clears, count_micro_batches

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator, Sequence

    from instep.rules.finding import Finding, Fix
    from instep.rules.source import Source
    from instep.rules.view import View
    from instep.trace import Event, WindowRecord

CODE = "INS102"
NAME = "cleared-before-step"
SUMMARY = "Gradients are cleared before the step that should have used them."
SEVERITY = Severity.ERROR
MILDEST = Severity.INFO
NEEDS = (Backward, Step)

BAD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.zero_grad()  # <- here
    optimizer.step()
"""

GOOD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def judge(view: View) -> Iterator[Finding]:
    """Find clears between a backward and the step that it was made for."""
    yield from distinct(_findings(view))


def _findings(view: View) -> Iterator[Finding | None]:
    for optimizer, windows in judged(view):
        others = used_by_others(view, optimizer)
        judged_windows = [
            (window, _judge(view, window, step, others) if window.lost else None)
            for window, step in updates(windows)
        ]
        hit = [window for window, finding in judged_windows if finding is not None]
        once = len(hit) == 1 and bool(hit[0].kept)
        if 2 * len(judged_windows) > 3 * len(hit) or once:
            continue  # a probe, or updates that are skipped: the loop would do it every time
        yield from (finding for _, finding in judged_windows)


def _judge(view: View, window: WindowRecord, step: Step, others: frozenset[int]) -> Finding | None:
    lost = [
        backward
        for backward in window.lost
        if id(backward) not in others and not _is_foreign(view, window, backward)
    ]
    kept = window.kept
    again = {backward.place for backward in kept}
    # A backward of its own, cleared before another one, may have been made to be looked at.
    missed = [b for b in lost if not kept or (b.place in again and not _waits(window, b))]
    is_once = sum(map(clears, window.events)) == 1
    if missed and kept and is_once and not _is_whole(window, missed):
        return None  # the same lines for another purpose: what clears every time clears twice
    if missed:
        severity, message = Severity.ERROR, _count(view, window, missed)
        if kept:
            severity = if_several(view, window, severity)
    else:
        missed = [b for b in lost if _is_beside(view, window, b)]
        severity, message = Severity.WARNING, _other(window, missed)
    if not missed:
        return None
    clear = _clear(window, missed[-1])
    return report(
        sys.modules[__name__],
        clear,
        message,
        severity=severity,
        related=[(missed[-1], "backward here"), (step, "stepped here")],
        evidence=[*missed, *kept, step],
    )


def _is_whole(window: WindowRecord, missed: list[Backward]) -> bool:
    """Say whether losses are divided by as many as there are with those that were cleared."""
    every = (*missed, *window.kept)
    return all(is_close(backward.factor, 1 / len(every)) for backward in every)


def _is_foreign(view: View, window: WindowRecord, backward: Backward) -> bool:
    """Say whether the loss came from models that this optimizer does not train."""
    mine = names(view.facts.get(window.optimizer, {}).get("models"))
    if mine is None or backward.models is None:
        return False
    return not any(
        is_part(one, other) or is_part(other, one) for one in mine for other in backward.models
    )


def _after(window: WindowRecord, backward: Backward) -> tuple[Event, ...]:
    at = next(at for at, event in enumerate(window.events) if event is backward)
    return window.events[at + 1 :]


def _clear(window: WindowRecord, backward: Backward) -> Event:
    return next(event for event in _after(window, backward) if clears(event))


def _waits(window: WindowRecord, backward: Backward) -> bool:
    """Say whether an epoch ended before the clear: then it is what was left of that epoch."""
    for event in _after(window, backward):
        if clears(event):
            return False
        if isinstance(event, EpochEnd) and event.of is None:
            return True
    return False


def _is_beside(view: View, window: WindowRecord, backward: Backward) -> bool:
    """Say whether another loss of the same batch follows, and nobody looked at this one's."""
    if not window.kept or backward.place in {other.place for other in window.kept}:
        return False
    type_ = view.facts.get(window.optimizer, {}).get("type")
    if type_ is not None and not str(type_).startswith("torch.optim."):
        return False  # it may have gathered what it needs in the backward, as K-FAC does
    for event in _after(window, backward):
        if isinstance(event, Drawn | EpochEnd | Forward):
            return False  # what goes through the model again may have been changed by the first
        if event is window.kept[0]:
            break
    if _is_of_another(view, window, backward):
        return False
    looks = (GradRead, GradEdited)
    return not any(isinstance(event, looks) for event in view.events)


def _is_of_another(view: View, window: WindowRecord, backward: Backward) -> bool:
    """Say whether another optimizer steps before what the loss has left in this one is cleared."""
    clear = _clear(window, backward)
    at = next(at for at, event in enumerate(view.events) if event is backward)
    for event in view.events[at:]:
        if event is clear:
            break
        if isinstance(event, Step) and event.optimizer != window.optimizer:
            return True
    return False


def _count(view: View, window: WindowRecord, missed: list[Backward]) -> str:
    name = quoted([window.optimizer])
    counts = {id(backward) for backward in (*missed, *window.kept)}
    total = count_micro_batches(
        event for event in window.events if isinstance(event, Drawn) or id(event) in counts
    )
    if total == 1 and not window.kept and _is_late(window, missed[-1]):
        return f"{name} steps before the backward, so no update uses the gradients of its batch."
    if total == 1:
        return f"the gradients are cleared before {name} steps, so the update uses none of them."
    is_sure = _is_written(view, window, total)
    whole = counted(total) if is_sure else "the micro-batches of a window"
    if not window.kept:
        return f"none of {whole} reaches the update of {name}: all are cleared before it."
    used = count_micro_batches(window.since_clear)
    if used > 1:
        some = used if is_sure else "some"
        return f"only {some} of {whole} reach the update of {name}: the others are cleared before."
    return f"only the last of {whole} reaches the update of {name}."


def _is_late(window: WindowRecord, backward: Backward) -> bool:
    """Say whether a backward stands after the step that is nearest to it in the source."""
    step = window.steps[-1].place if window.steps else None
    if step is None or backward.place is None or step.function != backward.place.function:
        return False
    return backward.place.line > step.line


def _is_written(view: View, window: WindowRecord, total: int) -> bool:
    """Say whether the number of micro-batches is the user's, and not one of the checker's own."""
    if view.facts.get("job", {}).get("source") != "check":
        return True
    loaders = {event.loader for event in window.of(Drawn) if event.loader is not None}
    lengths = {view.facts.get(loader, {}).get("length") for loader in loaders}
    return total in lengths or any(step.every_written == "literal" for step in window.steps)


def _other(window: WindowRecord, missed: list[Backward]) -> str:
    name = quoted([window.optimizer])
    # Of those that are cleared here: what was lost before them has a clear of its own.
    last = missed[-1].loss if missed else None
    loss = f" of `{last.partition('#')[0]}`" if last else ""
    return f"the gradients{loss} are cleared before the update of {name} uses them."


def _siblings(source: Source, statement: ast.stmt) -> Sequence[ast.stmt]:
    block = source.block(statement)
    return () if block is None else block.statements


def mend(finding: Finding, source: Source) -> Iterator[Fix]:
    """Move the clear in front of the loop that it cuts up, or behind the step."""
    clear = source.statement_at(finding.place)
    step = None if clear is None else step_statement(source, finding, clear)
    if clear is None or step is None:
        return
    backward = next(iter(evidence(finding, Backward)), None)
    late = None if backward is None else source.statement_at(backward.place)
    if late is not None and late in _siblings(source, step) and late.lineno > step.lineno:
        # The update stands before the backward it was made for.
        yield from moves(source, "step after the backward", step, late, after=True)
        return
    loop = loop_apart(source, next(carried(source, clear, step)), step)
    if loop is not None:
        yield from moves(source, "clear before the loop over the micro-batches", clear, loop)
    yield from moves(source, "clear after the step", clear, step, after=True)
    yield from offer("remove the early clear", delete(source, clear))
