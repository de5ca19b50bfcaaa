"""INS309 low-precision-accumulation

The parameters are bfloat16 or float16, so their gradients are, and a window adds them up in that
type. bfloat16 keeps 8 bits: once a sum is 256 times larger than what is added, the addition
changes nothing. The more micro-batches a window has, the more of their gradients is lost: the sum
of 1,024 of them is a third too small. A running job is measured: for one parameter, the same
gradients are added up in float32 beside its `.grad`.

**Fix.** Keep the parameters in float32 and compute in bfloat16 under `torch.autocast`; or add up
in float32, as `instep.Stepper` does (with torch 2.10 and newer: `parameter.grad_dtype =
torch.float32`).

**When it is fine.** With a few micro-batches in a window the error is that of the type itself;
what is below 1 % is not told.
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

CODE = "INS309"
NAME = "low-precision-accumulation"
SUMMARY = "Gradients are added up in a type that is too coarse for their sum."
SEVERITY = Severity.WARNING
NEEDS = (Measured,)
SEEN = "watch"

BAD = """\
import torch

model = torch.nn.Linear(16, 16, dtype=torch.bfloat16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for update in range(4):
    optimizer.zero_grad()
    for micro in range(256):
        x = torch.rand(8, 16, dtype=torch.bfloat16)
        loss = model(x).square().mean() / 256
        loss.backward()
    optimizer.step()  # <- here
"""

GOOD = """\
import torch

model = torch.nn.Linear(16, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for update in range(4):
    optimizer.zero_grad()
    for micro in range(256):
        x = torch.rand(8, 16)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(x).square().mean() / 256
        loss.backward()
    optimizer.step()
"""

_TOO_MUCH = 0.01


def judge(view: View) -> Iterator[Finding]:
    """Find sums of gradients that are too far from the same sum in float32."""
    errors = measured(view, "accumulation-error")
    yield from distinct(_report(error) for error in errors if error.value > _TOO_MUCH)


def _report(error: Measured) -> Finding | None:
    where = "a parameter" if error.subject is None else f"`{spelled(error.subject)}`"
    return report(
        sys.modules[__name__],
        error,
        f"the sum of the gradients of {where} is {error.value:.1%} off: it is added up in its own "
        "low precision.",
    )
