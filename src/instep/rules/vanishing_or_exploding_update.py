"""INS506 vanishing-or-exploding-update

What an update changes, compared with the weights themselves, says whether a run can learn: a
thousandth is usual. Below a millionth nothing moves, and a float32 weight can hardly hold the
change (a bfloat16 one cannot); above a half the weights are new after two updates and forget
what they have learnt. The ratio of the norms is measured for the largest weight of each optimizer
and told when its median over 32 measured updates is out of these bounds. Weights that were blown up
by the first updates are large ever after, so that the ratio is small again: they are told by what
they were first, if the loss has grown as well.

**Fix.** Look at the learning rate first, then at what multiplies the gradient: a loss that is a
sum and not a mean, a window that is not divided, a loss scale that is still in it, a clip that is
far too tight.

**When it is fine.** While a schedule warms up, or at its end, updates are small on purpose: they
are compared with the schedule's highest rate. So they are in a group or an optimizer whose rate is
far below that of another, which is not looked at, and where a loss is at its floor: of weights that
did move, or have next to no gradient, it is not said that they do not move. Toy problems may be
happy with large updates.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from instep.rules.finding import Severity
from instep.rules.reading import distinct, measured
from instep.rules.view import report, spelled
from instep.trace import Measured

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.rules.finding import Finding
    from instep.rules.view import View

CODE = "INS506"
NAME = "vanishing-or-exploding-update"
SUMMARY = "Updates are far too small or too large for the weights, one after the other."
SEVERITY = Severity.WARNING
NEEDS = (Measured,)
SEEN = "watch"

BAD = """\
import torch

model = torch.nn.Linear(16, 4)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-9)
for update in range(60):
    x, y = torch.randn(32, 16), torch.randn(32, 4)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()  # <- here
"""

GOOD = """\
import torch

model = torch.nn.Linear(16, 4)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for update in range(60):
    x, y = torch.randn(32, 16), torch.randn(32, 4)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
"""

_LEAST, _MOST = 1e-6, 0.5


def judge(view: View) -> Iterator[Finding]:
    """Find optimizers whose updates are out of proportion to the weights."""
    ratios = measured(view, "update-ratio")
    growth = {each.optimizers: each.value for each in measured(view, "loss-growth")}
    blown = [each for each in measured(view, "update-of-first") if each.optimizers in growth]
    yield from distinct(
        (
            *(_report(ratio) for ratio in ratios if not _LEAST <= ratio.value <= _MOST),
            *(_report_blown(each, growth[each.optimizers]) for each in blown),
        )
    )


def _subjects(ratio: Measured) -> tuple[str, str]:
    """Return what a measurement is about: an optimizer and a weight, as a message names them."""
    (optimizer,) = ratio.optimizers or ("",)
    weight = "its largest weight" if ratio.subject is None else f"`{spelled(ratio.subject)}`"
    return f"`{spelled(optimizer)}`", weight


def _report_blown(change: Measured, growth: float) -> Finding | None:
    optimizer, weight = _subjects(change)
    return report(
        sys.modules[__name__],
        change,
        f"an update of {optimizer} changes {weight} by {change.value:,.0f} times the size it began "
        f"with (median), and the loss is {growth:,.0f} times the first one: its weights explode.",
    )


def _report(ratio: Measured) -> Finding | None:
    optimizer, weight = _subjects(ratio)
    if ratio.value < _LEAST:
        says, so = f"by {ratio.value:.1e} of its size", "it hardly learns"
    else:
        says, so = f"by {ratio.value:.0%} of its size", "it keeps little of what it has learnt"
    return report(
        sys.modules[__name__],
        ratio,
        f"an update of {optimizer} changes {weight} {says} (median): {so}.",
    )
