"""INS306 unscaled-backward

`scaler.step(optimizer)` divides the gradients by the loss scale before the update, but this
backward was never multiplied by it. The update is too small by that factor, 65536 at the start by
default: the loss hardly moves. Where one loss of several is scaled and another is not, the two
are added with weights that differ by the same factor. If no loss at all goes through the scaler,
its first step raises an `AssertionError`, except without a GPU, where it switches itself off.

**Fix.** `scaler.scale(loss).backward()` for every loss whose optimizer is stepped by the scaler.

**When it is fine.** Training in bfloat16 needs no scaler: step the optimizer directly, or make the
scaler with `enabled=False`; then nothing is reported. Nor is a loss that is multiplied by
`scaler.get_scale()` by hand.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from instep.rules.edits import replace, replace_bracketed
from instep.rules.finding import Severity
from instep.rules.losses import backpropagated
from instep.rules.mending import evidence, offer, scaler_name
from instep.rules.reading import distinct, is_hidden, is_managed, since_clear
from instep.rules.scaling import is_of_scale, may_scale, most_scaled, scale_of
from instep.rules.spelling import receiver
from instep.rules.view import report, spelled
from instep.trace import Backward, Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.rules.finding import Finding, Fix
    from instep.rules.source import Source
    from instep.rules.view import View
    from instep.trace import Place, WindowRecord

CODE = "INS306"
NAME = "unscaled-backward"
SUMMARY = "The step goes through a scaler, but the loss did not."
SEVERITY = Severity.ERROR
NEEDS = (Backward, Step)

BAD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()  # <- here
    scaler.step(optimizer)
    scaler.update()
"""

GOOD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""


def judge(view: View) -> Iterator[Finding]:
    """Find unscaled backwards in updates that a scaler makes."""
    if not is_managed(view) and view.scalers:
        found = (_judge(view, w) for windows in view.windows.values() for w in windows)
        yield from distinct(finding for findings in found for finding in findings)


def _judge(view: View, window: WindowRecord) -> Iterator[Finding | None]:
    step = next(iter(window.steps), None)
    if step is None or step.optimizer is None or step.scaler is None:
        return
    if not may_scale(view, step.scaler) or is_hidden(since_clear(window)):
        return
    scaled = [backward for backward in window.kept if backward.scaled]
    scale = most_scaled(view, step.scaler)
    by_hand = view.read(_by_hand)
    # One that has a scale was given something to scale, and its steps do not raise.
    ever = scale is not None or any(b.scaled is not False for b in view.trace.of(Backward))
    again = {backward.loss for backward in scaled}
    for backward in window.kept:
        if backward.loss in again:
            continue  # the same loss a second time: torch raises before anything is added
        if backward.place is not None and backward.place in by_hand:
            continue
        if backward.scaled is False and backward.optimizers is not None:
            yield report(
                sys.modules[__name__],
                backward,
                _message(spelled(step.scaler), window, scale, mixed=bool(scaled), ever=ever),
                related=[*((other, "scaled here") for other in scaled), (step, "stepped here")],
                evidence=[step, *scaled],
            )


def _by_hand(view: View) -> set[Place | None]:
    """Return where losses go backward that a running job has multiplied by the scale itself.

    The scale may be another one by now, and if it is a new one all the time some factors are not
    known: one such loss at a place speaks for all.
    """
    scale = scale_of(view, None)
    return {
        backward.place
        for backward in view.trace.of(Backward)
        if any(is_of_scale(part, scale) for part in backward.parts)
    }


def _message(
    scaler: str, window: WindowRecord, scale: float | None, *, mixed: bool, ever: bool
) -> str:
    if mixed:
        return (
            f"this loss does not go through `{scaler}`, so beside the scaled ones it hardly "
            f"counts in the update of `{spelled(window.optimizer)}`."
        )
    if not ever:
        return (
            f"no loss goes through `{scaler}`, so its first step raises where it is enabled "
            f"and `{spelled(window.optimizer)}` is never updated."
        )
    times = f"up to {scale:,.6g}" if scale is not None and scale > 1 else "that many"
    return (
        f"this loss does not go through `{scaler}`, which still divides its gradients by the loss "
        f"scale: the update of `{spelled(window.optimizer)}` is {times} times too small."
    )


def mend(finding: Finding, source: Source) -> Iterator[Fix]:
    """Send the loss through the scaler that steps."""
    call = source.call_at(finding.place)
    loss = None if call is None else backpropagated(call)
    for step in evidence(finding, Step):
        scaler = scaler_name(source, step.place)
        if loss is not None and scaler is not None:
            scaled = f"{scaler}.scale({source.code(loss)})"
            is_receiver = call is not None and loss is receiver(call)
            edits = (
                replace_bracketed(source, loss, scaled) if is_receiver else replace(loss, scaled)
            )
            yield from offer(f"scale the loss with `{scaler}`", edits)
