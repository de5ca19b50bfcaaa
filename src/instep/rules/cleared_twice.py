"""INS106 cleared-twice

Gradients are cleared twice with no backward in between. The second clear finds nothing to clear.
The update is right; the call costs a pass over the parameters, and whoever reads the loop has to
find out which of the two matters.

**Fix.** Delete one of them. `model.zero_grad()` beside `optimizer.zero_grad()` is only needed if
the model has parameters that the optimizer does not hold.

**When it is fine.** Always, except for the time. A clear before the loop beside one in the loop is
not reported.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

from instep.rules.accumulation import quoted
from instep.rules.deletion import delete
from instep.rules.finding import Severity
from instep.rules.mending import offer
from instep.rules.moving import carried
from instep.rules.reading import distinct, is_managed
from instep.rules.view import report
from instep.trace import Backward, Created, Drawn, EpochEnd, GradEdited, Opaque, Step, Zero

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.rules.finding import Finding, Fix
    from instep.rules.source import Source
    from instep.rules.view import View

CODE = "INS106"
NAME = "cleared-twice"
SUMMARY = "Gradients are cleared twice with no backward in between."
SEVERITY = Severity.INFO
NEEDS = (Zero,)

BAD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()  # <- here
    loss.backward()
    optimizer.step()
"""

GOOD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""

_CONCERNS = frozenset({Backward, Created, Drawn, EpochEnd, GradEdited, Opaque, Zero})


def judge(view: View) -> Iterator[Finding]:
    """Find clears of gradients that nothing has filled since they were cleared."""
    if not is_managed(view):
        yield from distinct(_findings(view))


def _findings(view: View) -> Iterator[Finding | None]:
    stepped = {step.optimizer for step in view.trace.of(Step)}
    empty: dict[str, Zero] = {}
    is_running = False  # a clear before the loop beside one inside it is a habit, and harmless
    for event in [event for event in view.events if type(event) in _CONCERNS]:
        match event:
            case Backward() if event.optimizers is not None:
                for optimizer in event.optimizers:
                    empty.pop(optimizer, None)
                is_running = True
            case Drawn():
                is_running = True
            case Backward() | GradEdited() | Opaque() | EpochEnd(of=None):
                empty.clear()
                is_running = is_running and not isinstance(event, EpochEnd)
            case Created():
                empty.pop(event.id, None)  # another one of this name, or with more in it
            case Zero(optimizers=None) | Zero(complete=False):
                empty.clear()
            case Zero() if is_running:
                named = event.optimizers or ()
                before = [empty[name] for name in named if name in empty]
                together = named and len(before) == len(named) and stepped.issuperset(named)
                if together and _are_as_many(view, before[0], event):
                    yield _report(before[0], event)
                empty.update(dict.fromkeys(named, event))


def _are_as_many(view: View, one: Zero, other: Zero) -> bool:
    """Say whether two clears happen equally often: one per epoch beside one per update is care."""
    counts = Counter(zero.place for zero in view.trace.of(Zero))
    return abs(counts[one.place] - counts[other.place]) <= 1


def _report(before: Zero, again: Zero) -> Finding | None:
    if before.place == again.place:
        return None
    return report(
        sys.modules[__name__],
        again,
        f"the gradients of {quoted(again.optimizers or ())} are cleared again, with no backward "
        "since they were cleared.",
        related=[(before, "cleared before here")],
        evidence=[before],
    )


def mend(finding: Finding, source: Source) -> Iterator[Fix]:
    """Remove the second clear."""
    clear = source.statement_at(finding.place)
    for statement in () if clear is None else carried(source, clear, source.tree):
        yield from offer("remove the second clear", delete(source, statement))
