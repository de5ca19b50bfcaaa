"""INS304 scaler-without-update

`scaler.step(optimizer)` is called, `scaler.update()` never. An enabled scaler remembers that the
optimizer has been stepped until it is updated, so the second update of the run raises
`RuntimeError: step() has already been called since the last update()`. Without a GPU the scaler
switches itself off and the same loop runs through, which is how this passes tests on a CPU.

The update is also what adapts the loss scale: without it a scale that is too large stays too
large, and every update is skipped.

**Fix.** Call `scaler.update()` once per update, after the last `scaler.step` of the iteration. One
update serves all optimizers of a scaler.

**When it is fine.** If the scaler is updated by something that `instep check` could not follow;
then nothing is reported. A scaler that has switched itself off does no harm in the run at hand, so
`instep watch` says nothing about it: there, only source shows the mistake.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from instep.rules.finding import Severity
from instep.rules.mending import scaler_name
from instep.rules.moving import inserts
from instep.rules.reading import distinct, is_managed
from instep.rules.scaling import may_scale
from instep.rules.view import report, spelled
from instep.trace import Backward, Opaque, ScalerUpdate, Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.rules.finding import Finding, Fix
    from instep.rules.source import Source
    from instep.rules.view import View

CODE = "INS304"
NAME = "scaler-without-update"
SUMMARY = "A scaler steps the optimizer but is never updated."
SEVERITY = Severity.ERROR
NEEDS = (Step,)

BAD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)  # <- here
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
    """Find scalers that step one optimizer again and again without an update."""
    if not is_managed(view):
        yield from distinct(_judge(view, scaler) for scaler in sorted(view.scalers))


def _judge(view: View, scaler: str) -> Finding | None:
    steps = [e for e in view.events if isinstance(e, Step) and e.scaler == scaler]
    stepped = [step.optimizer for step in steps]
    # A helper that makes a single step may be updated by whoever calls it.
    goes_on = any(name is not None and stepped.count(name) > 1 for name in stepped)
    if not goes_on or not may_scale(view, scaler) or _may_be_updated(view, scaler, stepped):
        return None
    last = _last_of_iteration(steps)
    backward = next((e for e in view.events if isinstance(e, Backward) and e.scaled), None)
    name = f"`{spelled(scaler)}`"
    return report(
        sys.modules[__name__],
        last,
        f"{name} is never updated, so the second update raises where {name} is enabled, "
        "and the loss scale never adapts.",
        related=[(backward, "scaled here")],
        evidence=steps,
    )


def _last_of_iteration(steps: list[Step]) -> Step:
    """Return the step after which the update is missing: the last before one comes again."""
    seen = set()
    last = steps[0]
    for step in steps:
        if step.optimizer in seen:
            break
        seen.add(step.optimizer)
        last = step
    return last


def _may_be_updated(view: View, scaler: str, stepped: list[str | None]) -> bool:
    for event in view.events:
        match event:
            case ScalerUpdate() if event.scaler in {scaler, None}:
                return True
            case Opaque() if event.optimizers is None or scaler in event.ids:
                return True
            case Opaque() if not set(event.optimizers or ()).isdisjoint(stepped):
                return True
    return False


def mend(finding: Finding, source: Source) -> Iterator[Fix]:
    """Update the scaler after the last step of the iteration."""
    scaler = scaler_name(source, finding.place)
    if scaler is not None:
        step = source.statement_at(finding.place)
        title = f"update `{scaler}` after the step"
        yield from inserts(source, title, f"{scaler}.update()", step, after=True)
