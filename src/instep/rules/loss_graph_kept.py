"""INS601 loss-graph-kept

A loss is added to a total, or put into a list, with its graph. The graph of every iteration then
hangs on that name, so memory grows with each batch until the device runs out of it, and the total
gets slower to handle. The update is right. `instep check` reads this in source; `instep watch` sees
graphs that stay alive, and calls it [memory-growth](memory-growth.md).

**Fix.** Keep a number: `total += loss.item()`, or `total += loss.detach()` where waiting for the
device at every iteration costs too much.

**When it is fine.** If the sum is backpropagated, its graph is needed; then, and where the name
does not outlive the iteration, nothing is reported. A sum that begins anew every so many
iterations holds no more graphs than that, so it is a note.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from instep.rules.finding import Severity
from instep.rules.keeping import detached
from instep.rules.mending import offer
from instep.rules.reading import distinct
from instep.rules.view import report, spelled
from instep.trace import Backward, LossKept

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.rules.finding import Finding, Fix
    from instep.rules.source import Source
    from instep.rules.view import View

CODE = "INS601"
NAME = "loss-graph-kept"
SUMMARY = "Losses are kept with their graphs, so memory grows with every iteration."
SEVERITY = Severity.WARNING
MILDEST = Severity.INFO
NEEDS = (LossKept,)
SEEN = "check"

BAD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
total = 0.0
for x, y in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    total += loss  # <- here
print(total / len(loader))
"""

GOOD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
total = 0.0
for x, y in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    total += loss.item()
print(total / len(loader))
"""


def judge(view: View) -> Iterator[Finding]:
    """Find losses that are stored in something that lives on."""
    yield from distinct(
        _report(view, event)
        for event in view.events
        if isinstance(event, LossKept) and event.outlives
    )


def _report(view: View, kept: LossKept) -> Finding | None:
    backwards = (event for event in view.events if isinstance(event, Backward))
    backward = next((b for b in backwards if kept.loss is not None and b.loss == kept.loss), None)
    into = "a name that lives on" if kept.into is None else f"`{spelled(kept.into)}`"
    lasts = "until that begins anew, so memory grows up to there"
    return report(
        sys.modules[__name__],
        kept,
        f"the graph of every loss stays alive in {into} {lasts}."
        if kept.renewed
        else f"the graph of every loss stays alive in {into}, so memory grows with each iteration.",
        severity=Severity.INFO if kept.renewed else None,
        related=[(backward, "backward here")],
        evidence=[] if backward is None else [backward],
    )


def mend(finding: Finding, source: Source) -> Iterator[Fix]:
    """Keep the value of the loss and not its graph."""
    kept = finding.evidence[0]
    statement = source.statement_at(finding.place)
    if statement is not None and isinstance(kept, LossKept):
        edits = detached(source, statement, None if kept.loss is None else spelled(kept.loss))
        yield from offer("keep the loss without its graph", edits)
