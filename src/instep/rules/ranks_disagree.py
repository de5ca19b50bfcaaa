"""INS606 ranks-disagree

The ranks of a distributed job are meant to hold the same model and do not: their weights differ,
or they have made different numbers of updates. Each trains a model of its own, the checkpoint of
rank 0 has seen a fraction of the data, and what is logged belongs to none of them. Nothing
crashes. The usual causes: the forward goes around `DistributedDataParallel` (`model.module(x)`, a
method of the inner model), every backward of a window is inside `no_sync`, a step is skipped on
one rank alone because only that one has seen a NaN, weights are loaded or changed on rank 0 after
the model was wrapped, or one rank has fewer batches than the others, which then wait for it.

**Fix.** Call the wrapped model itself; leave `no_sync` for the last micro-batch of a window;
decide on all ranks together whether to step; load before wrapping, or broadcast afterwards; give
all ranks the same number of batches, or loop inside of `model.join()`.

**When it is fine.** Ranks that train apart on purpose. Only models under `DistributedDataParallel`
without a communication hook are compared, and none that uses `join`: a slice of one weight and the
number of gradients that were averaged, at some updates, through the store of the process group,
which neither waits nor takes part in what the ranks exchange. `instep watch` also compares how
often each rank of a machine has stepped, and what its last update has left, when its programs are
over. The number of updates in a message says when ranks were compared, not when they went apart.
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

CODE = "INS606"
NAME = "ranks-disagree"
SUMMARY = "Ranks that should hold the same model have other weights, or other numbers of updates."
SEVERITY = Severity.ERROR
NEEDS = (Measured,)
SEEN = "watch"

BAD = """\
import torch
from torch.nn.parallel import DistributedDataParallel

torch.distributed.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
torch.manual_seed(torch.distributed.get_rank())
for update in range(40):
    x, y = torch.randn(32, 16), torch.randn(32, 4)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model.module(x), y)
    loss.backward()
    optimizer.step()  # <- here
"""

GOOD = """\
import torch
from torch.nn.parallel import DistributedDataParallel

torch.distributed.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
torch.manual_seed(torch.distributed.get_rank())
for update in range(40):
    x, y = torch.randn(32, 16), torch.randn(32, 4)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
"""


def judge(view: View) -> Iterator[Finding]:
    """Find ranks whose model is not that of the others."""
    yield from distinct(_report(gauge) for gauge in measured(view, "ranks-disagree"))


def _report(gauge: Measured) -> Finding | None:
    (optimizer,) = gauge.optimizers or ("",)
    count = int(gauge.value)
    which = gauge.subject or ("a rank differs" if count == 1 else f"{count} ranks differ")
    return report(
        sys.modules[__name__],
        gauge,
        f"ranks have gone apart under `{spelled(optimizer)}`: {which}.",
    )
