"""INS505 nonfinite-step

An update was made with a gradient that is infinite or NaN. Every weight that it reaches is NaN
from then on, momentum and Adam's averages keep it, and clearing the gradients does not help: the
run is lost, however long it goes on. Clipping does not help either: the norm of such a gradient is
not finite, and a clip by it makes all of them NaN.

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
    broken = measured(view, "nonfinite-updates")
    yield from distinct(_report(gauge) for gauge in broken if gauge.value)


def _report(broken: Measured) -> Finding | None:
    count = int(broken.value)
    (optimizer,) = broken.optimizers or ("",)
    updates = "an update" if count == 1 else f"{count:,} updates"
    return report(
        sys.modules[__name__],
        broken,
        f"`{spelled(optimizer)}` has made {updates} with gradients that are not finite: its "
        "weights are lost.",
    )
