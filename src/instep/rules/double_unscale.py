"""INS307 double-unscale

`scaler.unscale_(optimizer)` is called twice for one update. The gradients may be divided by the
loss scale only once, so an enabled scaler raises `RuntimeError: unscale_() has already been called
on this optimizer since the last update()`. Without a GPU the scaler switches itself off and the
same loop runs through, which is how this passes tests on a CPU.

It is typical of accumulation: unscaled at every micro-batch, when only the last backward of the
window may be followed by it.

**Fix.** Unscale once per update, after the last backward of the window and before the first clip
or look at the gradients; delete the other call or move it behind the gate.

**When it is fine.** Two optimizers of one scaler are unscaled once each; that is not reported. A
scaler that has switched itself off does no harm in the run at hand, so `instep watch` says nothing
about it: there, only source shows the mistake.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from instep.rules.deletion import delete
from instep.rules.finding import Severity
from instep.rules.mending import offer, step_statement
from instep.rules.moving import carried, first_of_close, moves
from instep.rules.reading import distinct, is_managed
from instep.rules.scaling import may_scale
from instep.rules.view import report, spelled
from instep.trace import Backward, Opaque, ScalerUpdate, Step, Unscale

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.rules.finding import Finding, Fix
    from instep.rules.source import Source
    from instep.rules.view import View

CODE = "INS307"
NAME = "double-unscale"
SUMMARY = "Gradients are unscaled twice for one update."
SEVERITY = Severity.ERROR
NEEDS = (Unscale,)

BAD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_value_(model.parameters(), 0.5)
    scaler.unscale_(optimizer)  # <- here
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
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
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_value_(model.parameters(), 0.5)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
"""


def judge(view: View) -> Iterator[Finding]:
    """Find the second unscaling of an optimizer between two updates of its scaler."""
    if not is_managed(view):
        yield from distinct(_judge(view))


def _judge(view: View) -> Iterator[Finding | None]:
    updated = {event.scaler for event in view.events if isinstance(event, ScalerUpdate)}
    done: dict[tuple[str, str], Unscale] = {}  # by scaler and optimizer, since the last update
    backward: Backward | None = None
    for event in view.events:
        match event:
            case Backward():
                backward = event
            case ScalerUpdate():
                done = {
                    pair: unscale
                    for pair, unscale in done.items()
                    if event.scaler not in {pair[0], None}
                }
            case Step() if event.scaler not in updated:
                # Without any update the next window only shows what scaler-without-update says.
                done = {pair: u for pair, u in done.items() if pair[1] != event.optimizer}
            case Opaque():
                # It may have updated the scaler it was given, or that of its optimizers.
                done = {}
            case Unscale(optimizer=str(optimizer), scaler=str(scaler)):
                first = done.get((scaler, optimizer))
                if first is None:
                    done[scaler, optimizer] = event
                elif may_scale(view, scaler) and not view.facts.get(scaler, {}).get("asked"):
                    yield _report(event, first, backward)


def _report(second: Unscale, first: Unscale, backward: Backward | None) -> Finding | None:
    repeated = " at every micro-batch" if second.place == first.place else " twice"
    return report(
        sys.modules[__name__],
        second,
        f"the gradients of `{spelled(second.optimizer or '')}` are unscaled{repeated} for one "
        f"update, which raises where `{spelled(second.scaler or '')}` is enabled.",
        related=[(first, "unscaled here already"), (backward, "backward here")],
        evidence=[first] if backward is None else [first, backward],
    )


def mend(finding: Finding, source: Source) -> Iterator[Fix]:
    """Remove the second unscaling, or move the only one out of the window."""
    unscale = source.statement_at(finding.place)
    if unscale is None:
        return
    if finding.evidence[1].place == finding.place:
        step = step_statement(source, finding, unscale)
        first = None if step is None else first_of_close(source, step)
        yield from moves(source, "unscale once per update", unscale, first)
        return
    for statement in carried(source, unscale, source.tree):
        yield from offer("remove the second unscaling", delete(source, statement))
