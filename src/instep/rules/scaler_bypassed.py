"""INS305 scaler-bypassed

The loss went through `scaler.scale`, but the update is made by `optimizer.step()` itself. The
gradients are still multiplied by the loss scale, 65536 at the start by default: plain SGD makes a
step that many times too long. Adam hides the factor, because it divides by the size of the
gradients, but its epsilon no longer means what it did. And nobody looks for infinite gradients any
more, which a scaler produces on purpose while it searches for its scale: the first one turns the
weights into NaN.

A window of instep's Stepper takes the plain loss: with `precision="fp16"` it scales, unscales and
steps by itself, also where it is given the scaler (`scaler=`). What was scaled before stays so.

Where the gradients were unscaled by hand (`scaler.unscale_(optimizer)`) only that last check is
missing; this is a warning.

**Fix.** `scaler.step(optimizer)` in place of `optimizer.step()`, followed by `scaler.update()`.

**When it is fine.** An optimizer class that divides by the scale itself, as some half-precision
wrappers do.
"""

from __future__ import annotations

import ast
import re
import sys
from typing import TYPE_CHECKING

from instep.rules.accumulation import fact
from instep.rules.edits import insert, replace
from instep.rules.finding import Severity
from instep.rules.mending import offer, optimizer_name
from instep.rules.reading import distinct, is_hidden, is_managed, since_clear
from instep.rules.scaler_names import scaler_near, updates_scaler
from instep.rules.scaling import may_scale
from instep.rules.view import report, spelled
from instep.trace import Assumed, Backward, Unscale
from instep.trace.pattern import pattern

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from instep.rules.finding import Finding, Fix
    from instep.rules.source import Source
    from instep.rules.view import View
    from instep.trace import Event, WindowRecord

CODE = "INS305"
NAME = "scaler-bypassed"
SUMMARY = "The loss is scaled, but the optimizer is stepped without the scaler."
SEVERITY = Severity.ERROR
MILDEST = Severity.WARNING
NEEDS = (Backward,)

BAD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    optimizer.step()  # <- here
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

_OF_TORCH = {
    "ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS", "Muon",
    "NAdam", "RAdam", "RMSprop", "Rprop", "SGD", "SparseAdam",
}  # fmt: skip
_LOOKS_FOR_INF = pattern(r"finite|nan|inf\b|isinf|found_inf|overflow", re.IGNORECASE)


def judge(view: View) -> Iterator[Finding]:
    """Find direct steps on gradients that were all scaled."""
    if may_scale(view, None):
        scaled = (b for b in view.trace.of(Backward) if b.scaled and fact(view, b, "window"))
        yield from distinct(_of_stepper(backward) for backward in scaled)
    if not is_managed(view) and may_scale(view, None):
        found = (_judge(view, w) for windows in view.windows.values() for w in windows)
        yield from distinct(found)


def _of_stepper(backward: Backward) -> Finding | None:
    return report(
        sys.modules[__name__],
        backward,
        "this loss went through a scaler before it is given to a window of instep's Stepper, which "
        "does not undo that: its gradient stays multiplied by the loss scale.",
        severity=Severity.WARNING,
        advice='Give `window.backward` the plain loss; `Stepper(..., precision="fp16")` scales it.',
    )


def _judge(view: View, window: WindowRecord) -> Finding | None:
    step = next(iter(window.steps), None)
    if step is None or step.scaler is not None or step.optimizer is None or step.closure:
        return None
    events, backwards = since_clear(window), window.kept
    if not backwards or not all(b.scaled for b in backwards):
        return None
    unscales = [event for event in events if isinstance(event, Unscale)]
    if is_hidden(events) or (unscales and _is_checked(events)):
        return None
    name = spelled(window.optimizer)
    if unscales:
        message = f"`{name}` steps without the scaler, so infinite gradients are not skipped."
    else:
        message = (
            f"`{name}` steps on gradients that are still multiplied by the loss scale, "
            "and infinite ones are not skipped."
        )
    surely = not unscales and _is_of_torch(view, window.optimizer)
    return report(
        sys.modules[__name__],
        step,
        message,
        severity=Severity.ERROR if surely else Severity.WARNING,
        related=[(backwards[-1], "scaled here"), *((u, "unscaled here") for u in unscales)],
        evidence=[*backwards, *unscales],
    )


def _is_checked(events: Sequence[Event]) -> bool:
    """Say whether the step stands behind a test of its own for infinite gradients."""
    tests = (event.condition for event in events if isinstance(event, Assumed))
    return any(_LOOKS_FOR_INF.search(test) for test in tests)


def _is_of_torch(view: View, optimizer: str) -> bool:
    facts = view.facts.get(optimizer, {})
    package, _, name = str(facts.get("type", "")).rpartition(".")
    known = name in _OF_TORCH and package.partition(".")[0] in {"", "torch", "optim"}
    return known and facts.get("written") is True


def mend(finding: Finding, source: Source) -> Iterator[Fix]:
    """Step through the scaler that scales the loss."""
    call, name = source.call_at(finding.place), optimizer_name(source, finding.place)
    match call:
        case ast.Call(args=[ast.Call(func=ast.Attribute(attr="scale"), args=[loss]) as scaled]):
            yield from offer("give the window the plain loss", replace(scaled, source.code(loss)))
    if call is None or name is None or call.args or call.keywords:
        return
    step, scaler = source.statement(call), scaler_near(source, call)
    if scaler is None or step is None:
        return
    through = replace(call, f"{scaler}.step({name})")
    if updates_scaler(source, scaler, call):
        yield from offer(f"step `{name}` through `{scaler}`", through)
    else:
        update = insert(source, step, f"{scaler}.update()", after=True)
        yield from offer(f"step `{name}` through `{scaler}` and update it", through, update)
