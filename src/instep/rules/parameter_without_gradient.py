"""INS504 parameter-without-gradient

An optimizer holds parameters that have not had a gradient in any update so far. They are not
trained and do not even decay: an optimizer passes over a parameter whose gradient is None. Whether
a part of the model is cut off (a `.detach()`, a `torch.no_grad()`, a NumPy round trip, an output
that is not in the loss) or simply not used, only the running job shows.

**Fix.** Look for what stands between these parameters and the loss. If they are not meant to be
trained, say so: `parameter.requires_grad_(False)`, and leave them out of the optimizer.

**When it is fine.** Parts that are used later, or not at all, such as the pooler of a pretrained
model. That is why this is an information unless a part is called and still gets no gradient.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from instep.rules.finding import Severity
from instep.rules.reading import distinct, measured
from instep.rules.view import report, spelled
from instep.trace import Measured, Rebound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.rules.finding import Finding
    from instep.rules.view import View

CODE = "INS504"
NAME = "parameter-without-gradient"
SUMMARY = "Parameters of an optimizer have never had a gradient, so they are not trained."
SEVERITY = Severity.WARNING
MILDEST = Severity.INFO
NEEDS = (Measured,)
SEEN = "watch"

BAD = """\
import torch

encoder, head = torch.nn.Linear(16, 8), torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1)
for update in range(30):
    x, y = torch.randn(32, 16), torch.randn(32, 4)
    optimizer.zero_grad()
    with torch.no_grad():
        hidden = encoder(x)
    loss = torch.nn.functional.mse_loss(head(hidden), y)
    loss.backward()
    optimizer.step()  # <- here
"""

GOOD = """\
import torch

encoder, head = torch.nn.Linear(16, 8), torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1)
for update in range(30):
    x, y = torch.randn(32, 16), torch.randn(32, 4)
    optimizer.zero_grad()
    hidden = encoder(x)
    loss = torch.nn.functional.mse_loss(head(hidden), y)
    loss.backward()
    optimizer.step()
"""


def judge(view: View) -> Iterator[Finding]:
    """Find optimizers with parameters that no backward has reached."""
    if any(event.parameters for event in view.trace.of(Rebound)):
        return  # what has no gradient was replaced, and another rule says so
    cut = {event.optimizers: event for event in measured(view, "gradients-cut-off")}
    missing = (cut.get(gauge.optimizers, gauge) for gauge in measured(view, "gradients-missing"))
    yield from distinct(_report(gauge) for gauge in missing)


def _report(missing: Measured) -> Finding | None:
    count = int(missing.value)
    noun = "parameter" if count == 1 else "parameters"
    names = "" if missing.subject is None else f" ({missing.subject})"
    (optimizer,) = missing.optimizers or ("",)
    is_used = missing.quantity == "gradients-cut-off"
    verb = ("is" if count == 1 else "are") + " used and" if is_used else ""
    verb = f"{verb} {'has' if count == 1 else 'have'}".strip()
    return report(
        sys.modules[__name__],
        missing,
        f"{count} {noun} {verb} never had a gradient{names}, so `{spelled(optimizer)}` does not "
        f"train {'it' if count == 1 else 'them'}.",
        severity=Severity.WARNING if is_used else Severity.INFO,
    )
