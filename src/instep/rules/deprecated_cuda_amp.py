"""INS308 deprecated-cuda-amp

`torch.cuda.amp` is the old home of `autocast`, `GradScaler`, `custom_fwd` and `custom_bwd`. The
update is the same, but every use gives a `FutureWarning` since torch 2.4, the names will be
removed, and they only know one kind of device. `torch.amp` has the same four, with the device as
an argument.

**Fix.** `torch.amp.autocast("cuda", ...)` and `torch.amp.GradScaler("cuda", ...)`; for functions,
`torch.amp.custom_fwd(device_type="cuda", ...)` and `torch.amp.custom_bwd(device_type="cuda")`.

**When it is fine.** In code that must also run on torch before 2.3, which has no
`torch.amp.GradScaler`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from instep.rules.amp_names import renamed
from instep.rules.finding import Severity
from instep.rules.mending import offer
from instep.rules.reading import distinct
from instep.rules.view import report
from instep.trace import Called

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.rules.finding import Finding, Fix
    from instep.rules.source import Source
    from instep.rules.view import View

CODE = "INS308"
NAME = "deprecated-cuda-amp"
SUMMARY = "A name of torch.cuda.amp is used, which torch has deprecated."
SEVERITY = Severity.INFO
NEEDS = (Called,)
APART = True

BAD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    with torch.cuda.amp.autocast(dtype=torch.bfloat16):  # <- here
        loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""

GOOD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    with torch.amp.autocast("cuda", dtype=torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""

_NEW = {
    "autocast": 'torch.amp.autocast("cuda", ...)',
    "GradScaler": 'torch.amp.GradScaler("cuda", ...)',
    "custom_fwd": 'torch.amp.custom_fwd(device_type="cuda", ...)',
    "custom_bwd": 'torch.amp.custom_bwd(device_type="cuda")',
}


def judge(view: View) -> Iterator[Finding]:
    """Find the four names of torch.cuda.amp."""
    yield from distinct(map(_report, view.trace.of(Called)))


def _report(event: Called) -> Finding | None:
    name = event.api.rpartition(".")[2]
    if not event.api.startswith("torch.cuda.amp.") or name not in _NEW:
        return None
    return report(
        sys.modules[__name__],
        event,
        f"`torch.cuda.amp.{name}` is deprecated and will be removed; `{_NEW[name]}` does the same.",
    )


def mend(finding: Finding, source: Source) -> Iterator[Fix]:
    """Use the name in torch.amp and give it the device."""
    used = source.node(finding.place)
    if used is not None:
        yield from offer("use `torch.amp`", renamed(source, used))
