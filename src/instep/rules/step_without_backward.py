"""INS104 step-without-backward

An optimizer steps although no backward has filled its gradients since its last step. If they were
not cleared, the same gradients are applied a second time. If they were, parameters without a
gradient are skipped, and with gradients filled with zeros only momentum and weight decay move
them. Common causes are a step written twice (`scaler.step(optimizer)` and `optimizer.step()`), a
step of the wrong optimizer, and gradients that `torch.autograd.grad` returned and nobody stored.

**Fix.** Delete the second step, or step the optimizer whose loss was backpropagated.

**When it is fine.** A step before training starts, or in a loop that only shows what a schedule
does, changes nothing and is not reported. Neither is a step of a running job whose backward is
sometimes left out, as behind `if loss > limit:`, once the gradients were cleared. An optimizer
whose gradients nobody fills is a note where its model is only a name in the source: some models go
backward when they are called.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from instep.rules.accumulation import judged, quoted, updates
from instep.rules.finding import Severity
from instep.rules.reading import distinct, is_part, names
from instep.rules.view import report
from instep.trace import Assumed, Backward, Created, EpochEnd, Forward, GradEdited, Step
from instep.trace.gradients import clears

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.rules.finding import Finding
    from instep.rules.view import View
    from instep.trace import Event, WindowRecord

CODE = "INS104"
NAME = "step-without-backward"
SUMMARY = "An optimizer steps although no backward has filled its gradients since its last step."
SEVERITY = Severity.WARNING
MILDEST = Severity.INFO
NEEDS = (Step,)

BAD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    print(loss.item())
    optimizer.step()  # <- here
"""

GOOD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    print(loss.item())
"""


def judge(view: View) -> Iterator[Finding]:
    """Find steps whose window has no backward."""
    yield from distinct(_findings(view))


def _findings(view: View) -> Iterator[Finding | None]:
    for optimizer, windows in judged(view):
        first = next((w for w in windows if w.closed_by == "step" and w.backwards), None)
        for window, step in updates(windows):
            if _is_filled(window) or any(isinstance(e, EpochEnd) for e in window.events):
                continue  # after a loop, a step takes what is left: perhaps nothing
            if first is None:
                if window.index > 0 and _is_forgotten(view, windows):
                    yield _report_forgotten(view, optimizer, step)
            elif window.index > first.index and _is_mixed_in(windows, step):
                if _is_gated(windows, window):
                    continue
                yield _report(optimizer, windows[window.index - 1], window, step)


def _is_mixed_in(windows: tuple[WindowRecord, ...], step: Step) -> bool:
    """Say whether a step without a backward stands among training, and not in a loop that does
    nothing else: that one is timed.
    """
    places = [(w.steps[-1].place, bool(w.backwards)) for w in windows if w.closed_by == "step"]
    at = [index for index, (place, _) in enumerate(places) if place == step.place]
    between = places[at[0] + 1 : at[-1]]
    return len(at) == 1 or any(filled for _, filled in between)


def _is_gated(windows: tuple[WindowRecord, ...], window: WindowRecord) -> bool:
    """Say whether a backward was left out that this step usually follows.

    A gate on the loss (`if loss > limit: loss.backward()`) does that. Gradients that were cleared
    then move nothing, or only what momentum moves, and that may well be meant; gradients that were
    not are used a second time, which is not.
    """
    if not any(map(clears, window.events)):
        return False
    place = window.steps[-1].place
    return any(
        other.backwards and other.steps and other.steps[-1].place == place for other in windows
    )


def _is_forgotten(view: View, windows: tuple[WindowRecord, ...]) -> bool:
    """Say whether a loop surely trains, but never fills the gradients of this optimizer.

    A loop that only steps shows what a schedule does. Where a loss is backpropagated that no
    optimizer is known to hold, it may reach this one on a way that was not seen; where a
    condition was assumed, its other side may hold the backward.
    """
    facts = view.facts.get(windows[0].optimizer, {})
    models = names(facts.get("models"))
    if not models or not facts.get("written") or view.trace.of(Assumed):
        return False
    if any(_is_filled(window) for window in windows[1:]):
        return False
    runs = any(
        is_part(forward.model, model) or is_part(model, forward.model)
        for forward in view.trace.of(Forward)
        for model in models
        if forward.model is not None
    )
    backwards = view.trace.of(Backward)
    return all(b.optimizers for b in backwards) if runs else bool(backwards and not _strays(view))


def _strays(view: View) -> bool:
    """Say whether a loss goes backward into models that nobody holds."""
    return any(not backward.optimizers for backward in view.trace.of(Backward))


def _report_forgotten(view: View, optimizer: str, step: Step) -> Finding | None:
    """Report an optimizer whose gradients nobody fills; a note where the source shows no more of
    its model than the name, because that may go backward when it is called.
    """
    models = names(view.facts.get(optimizer, {}).get("models")) or ()
    is_read = view.facts.get("job", {}).get("source") == "check"
    seen = all(view.facts.get(model, {}).get("written") for model in models)
    return report(
        sys.modules[__name__],
        step,
        f"{quoted([optimizer])} steps, but no backward ever fills its gradients.",
        severity=Severity.INFO if is_read and not seen else None,
    )


def _is_filled(window: WindowRecord) -> bool:
    # Gradients may be put there by hand; a new optimizer may find those of the old one.
    return bool(window.backwards) or any(
        isinstance(event, GradEdited) or (isinstance(event, Created) and event.role == "optimizer")
        for event in window.events
    )


def _report(
    optimizer: str, before: WindowRecord, window: WindowRecord, step: Step
) -> Finding | None:
    name = quoted([optimizer])
    clear: Event | None = next((event for event in window.events if clears(event)), None)
    what = (
        f"{name} steps a second time on gradients that a step has used already"
        if clear is None
        else f"{name} steps although no backward has followed since its gradients were cleared"
    )
    return report(
        sys.modules[__name__],
        step,
        f"{what}.",
        related=[*((s, "stepped before here") for s in before.steps), (clear, "cleared here")],
        evidence=[*before.steps, *([] if clear is None else [clear])],
    )
