"""INS205 double-normalisation

The loss of each micro-batch is divided by the number of micro-batches twice: by hand and by the
framework that manages the window, or in the loss and again in the gradients. The update is then too
small by that number, as if the learning rate were a quarter of the one that was chosen.

**Fix.** Keep one of the two divisions. `accelerator.backward(loss)`, DeepSpeed's
`engine.backward(loss)` and Lightning's automatic optimization divide by themselves; where one of
them manages the window, give it the plain mean loss, as you do with `window.backward(loss)` of
instep's Stepper. In a loop of your own, divide the loss and leave the gradients alone.

**When it is fine.** If one of the factors is a weight that happens to have the same value. A job
that runs shows numbers and not what they are for, so `instep watch` makes a note of it. By what
number gradients were divided in place it does not see: that case only source shows.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from instep.rules.accumulation import fact, given, is_close, is_sum, quoted, updates
from instep.rules.finding import Severity
from instep.rules.reading import distinct, is_managed
from instep.rules.view import report
from instep.trace import Backward, GradEdited, Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.rules.finding import Finding
    from instep.rules.view import View
    from instep.trace import WindowRecord

CODE = "INS205"
NAME = "double-normalisation"
SUMMARY = "The loss is divided by the number of micro-batches twice."
SEVERITY = Severity.WARNING
MILDEST = Severity.INFO
NEEDS = (Backward,)

BAD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for update in range(1000):
    optimizer.zero_grad()
    for micro in range(4):
        x, y = next(batches)
        loss = torch.nn.functional.cross_entropy(model(x), y) / 4
        (loss / 4).backward()  # <- here
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


def judge(view: View) -> Iterator[Finding]:
    """Find windows whose factors add up to one over their size, by two divisions."""
    yield from distinct(_findings(view))


def _findings(view: View) -> Iterator[Finding | None]:
    for backward in view.trace.of(Backward):
        by = fact(view, backward, "again")
        if by is not None:
            yield _of_stepper(backward, by)
    yield from (
        _judge(view, window, step)
        for optimizer, windows in view.windows.items()
        if not view.is_opaque(optimizer)
        for window, step in updates(windows)
    )


def _of_stepper(backward: Backward, by: object) -> Finding | None:
    number, times = (f"`{by}`", "that many") if isinstance(by, str) else (by, by)
    return report(
        sys.modules[__name__],
        backward,
        f"this loss is divided by {number} before a window of instep's Stepper takes the mean over "
        f"its micro-batches: the gradient is {times} times too small.",
        advice="Give `window.backward` the plain mean loss, with `items=` where counts differ.",
    )


def _judge(view: View, window: WindowRecord, step: Step) -> Finding | None:
    kept, size = window.kept, window.micro_batches
    if size < 2 or not is_close(window.factor_sum, len(kept) / size / size):
        return None
    if any(is_sum(view, backward) for backward in kept):
        return None
    edit = next((e for e in window.of(GradEdited) if is_close(e.factor, 1 / size)), None)
    parts = [part for part in kept[-1].parts if is_close(part, 1 / size)]
    if edit is None and (len(parts) < 2 or (size == 2 and not is_managed(view))):
        return None  # a factor of one half is as often a weight as a division by 2
    watched = view.facts.get("job", {}).get("source") == "watch"
    name = quoted([window.optimizer])
    twice = (
        f"if neither factor of 1/{size} in this loss is a weight that is meant, the loss is "
        f"divided by {size} twice: with {size} micro-batches in a window, the update of {name} is "
        f"1/{size} of their mean."
    )
    message = (
        f"{given(view, window, size)}the update of {name} is 1/{size} of their mean: "
        f"the loss is divided by {size} twice."
    )
    return report(
        sys.modules[__name__],
        edit if edit is not None and len(parts) < 2 else kept[0],
        twice if watched else message,
        severity=Severity.INFO if watched else Severity.WARNING,
        related=[(kept[0], "divided in this loss"), (step, "stepped here")],
        evidence=[*kept, *window.of(GradEdited), step],
    )
