"""INS505 nonfinite-step

An update was made with a gradient that is infinite or NaN. Every weight that it reaches is NaN
from then on, momentum and Adam's averages keep it, and clearing the gradients does not help: the
run is lost, however long it goes on. Clipping does not help either: the norm of such a gradient is
not finite, and a clip by it makes all of them NaN.

It is told when the weights show it, so that a step that cleans its gradients or skips such ones is
none. Not every update of a fast job is looked at: then their number is the least that is certain.
A loss that is not finite makes the next update be looked at, and at the end of a job so are the
weights that it leaves.

**Fix.** Find what makes it: a logarithm or a root of zero, a division by an empty count, a
learning rate that is too large; `torch.autograd.set_detect_anomaly(True)` names the operation.
Then do not step on such gradients: look at the norm that `clip_grad_norm_` returns, or give it
`error_if_nonfinite=True`; with float16 step through a `torch.amp.GradScaler`; a window of
`instep.Stepper` is skipped and says so.

**When it is fine.** Never; a step that a scaler skips is not reported.
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

CODE = "INS505"
NAME = "nonfinite-step"
SUMMARY = "An update is made with gradients that are infinite or NaN."
SEVERITY = Severity.ERROR
NEEDS = (Measured,)
SEEN = "watch"

BAD = """\
import torch

model = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for update in range(20):
    x = torch.randn(32, 16)
    optimizer.zero_grad()
    loss = model(x).sqrt().mean()
    loss.backward()
    optimizer.step()  # <- here
"""

GOOD = """\
import torch

model = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for update in range(20):
    x = torch.randn(32, 16)
    optimizer.zero_grad()
    loss = model(x).clamp_min(1e-3).sqrt().mean()
    loss.backward()
    optimizer.step()
"""


def judge(view: View) -> Iterator[Finding]:
    """Find optimizers that have stepped on gradients that were not finite."""
    broken = [gauge for gauge in measured(view, "nonfinite-updates") if gauge.value]
    left = measured(view, "nonfinite-weights")
    yield from distinct([*map(_report, broken), *map(_left, left)])


def _report(broken: Measured) -> Finding | None:
    count = int(broken.value)
    least = "at least " if (broken.unit or "").endswith("at least") else ""
    if count == 1:
        updates = f"{least}one update" if least else "an update"
    else:
        updates = f"{least}{count:,} updates"
    return report(
        sys.modules[__name__],
        broken,
        f"{_name(broken)} has made {updates} with gradients that are not finite: its weights are "
        "lost.",
    )


def _left(left: Measured) -> Finding | None:
    verb = "are" if left.value > 1 or not left.subject else "is"
    who = f"weights of {_name(left)}" if not left.subject else f"`{left.subject}` of {_name(left)}"
    return report(
        sys.modules[__name__],
        left,
        f"{who} {verb} infinite or NaN when the job ends: an update has made them so, and they "
        "are lost.",
    )


def _name(gauge: Measured) -> str:
    (optimizer,) = gauge.optimizers or ("",)
    return f"`{spelled(optimizer)}`"
