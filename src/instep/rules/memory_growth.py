"""INS605 memory-growth

Graphs of updates that are long over are still alive: something holds a tensor that was computed
from the parameters, with everything behind it. Each iteration adds one, so memory grows until the
device runs out of it, hours into the run. `instep check` sees losses that are added up or
collected ([loss-graph-kept](loss-graph-kept.md)); here it may be anything: predictions in a list,
features in a cache, an attribute of a module, a logger. The update is right.

**Fix.** Keep values, not graphs: `.detach()` or `.item()` before a tensor is stored, or
`torch.no_grad()` around what is computed only to be looked at.

**When it is fine.** If the graphs are needed, because a later loss goes back through them; clear
the collection once that is done. What Python's garbage collector can free is not told, and neither
is what has an end: the last losses in a `deque(maxlen=100)`, or a list that begins anew.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from instep.rules.finding import Severity
from instep.rules.reading import distinct, measured
from instep.rules.view import report
from instep.trace import Measured

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.rules.finding import Finding
    from instep.rules.view import View

CODE = "INS605"
NAME = "memory-growth"
SUMMARY = "Graphs of earlier updates are kept alive, so memory grows with every iteration."
SEVERITY = Severity.WARNING
NEEDS = (Measured,)
SEEN = "watch"

BAD = """\
import torch

model = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
predictions = []
for update in range(30):
    x, y = torch.randn(32, 16), torch.randn(32, 4)
    optimizer.zero_grad()
    predicted = model(x)
    loss = torch.nn.functional.mse_loss(predicted, y)
    loss.backward()  # <- here
    optimizer.step()
    predictions.append(predicted)
"""

GOOD = """\
import torch

model = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
predictions = []
for update in range(30):
    x, y = torch.randn(32, 16), torch.randn(32, 4)
    optimizer.zero_grad()
    predicted = model(x)
    loss = torch.nn.functional.mse_loss(predicted, y)
    loss.backward()
    optimizer.step()
    predictions.append(predicted.detach())
"""


def judge(view: View) -> Iterator[Finding]:
    """Find graphs that outlive their updates."""
    yield from distinct(_report(kept) for kept in measured(view, "graphs-kept"))


def _report(kept: Measured) -> Finding | None:
    least = "at least " if (kept.unit or "").endswith("at least") else ""
    who = "something" if kept.subject is None else f"`{kept.subject}`"
    return report(
        sys.modules[__name__],
        kept,
        f"the graphs of {least}{int(kept.value)} earlier backwards are still alive, so memory "
        f"grows: {who} keeps what was computed for this one.",
    )
