"""INS105 wrong-optimizer-cleared

One optimizer is cleared twice, and the one that steps next is never cleared: the receiver of
`zero_grad()` was copied from another block. The gradients of the forgotten optimizer pile up, and
each of its updates also contains the gradients of all earlier batches.

**Fix.** Call `zero_grad()` on the optimizer whose backward and step follow.

**When it is fine.** If both optimizers hold the same parameters, clearing one clears the other.
That is not reported where it can be seen.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from instep.rules.accumulation import quoted
from instep.rules.edits import replace
from instep.rules.finding import Severity
from instep.rules.mending import evidence, offer, optimizer_name
from instep.rules.reading import distinct
from instep.rules.spelling import receiver
from instep.rules.stale import Stale, stale_updates
from instep.rules.view import report
from instep.trace import Step, Zero

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.rules.finding import Finding, Fix
    from instep.rules.source import Source
    from instep.rules.view import View

CODE = "INS105"
NAME = "wrong-optimizer-cleared"
SUMMARY = "Another optimizer is cleared in the place of the one that steps."
SEVERITY = Severity.ERROR
NEEDS = (Zero, Step)

BAD = """\
import torch

opt_a = torch.optim.SGD(net_a.parameters(), lr=0.1)
opt_b = torch.optim.SGD(net_b.parameters(), lr=0.1)
for x, y in loader:
    opt_a.zero_grad()
    loss_a = torch.nn.functional.mse_loss(net_a(x), y)
    loss_a.backward()
    opt_a.step()
    opt_a.zero_grad()  # <- here
    loss_b = torch.nn.functional.mse_loss(net_b(x), y)
    loss_b.backward()
    opt_b.step()
"""

GOOD = """\
import torch

opt_a = torch.optim.SGD(net_a.parameters(), lr=0.1)
opt_b = torch.optim.SGD(net_b.parameters(), lr=0.1)
for x, y in loader:
    opt_a.zero_grad()
    loss_a = torch.nn.functional.mse_loss(net_a(x), y)
    loss_a.backward()
    opt_a.step()
    opt_b.zero_grad()
    loss_b = torch.nn.functional.mse_loss(net_b(x), y)
    loss_b.backward()
    opt_b.step()
"""


def judge(view: View) -> Iterator[Finding]:
    """Find optimizers that are never cleared while another one is cleared in their place."""
    yield from distinct(_report(stale) for stale in stale_updates(view))


def _report(stale: Stale) -> Finding | None:
    if stale.mistaken is None:
        return None
    other = quoted(stale.mistaken.optimizers or ())
    name = quoted([stale.optimizer])
    return report(
        sys.modules[__name__],
        stale.mistaken,
        f"{other} is cleared where {name} should be: every update of {name} also contains the "
        "gradients of all earlier batches.",
        related=[(stale.backward, "backward here"), (stale.step, "stepped here")],
        evidence=[stale.backward, stale.step],
    )


def mend(finding: Finding, source: Source) -> Iterator[Fix]:
    """Clear the optimizer that is stepped."""
    clear = source.call_at(finding.place)
    cleared = None if clear is None else receiver(clear)
    for step in evidence(finding, Step):
        name = optimizer_name(source, step.place)
        if cleared is not None and name is not None:
            yield from offer(f"clear `{name}` instead", replace(cleared, name))
