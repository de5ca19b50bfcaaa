"""INS207 coupled-loss-split

In a contrastive loss every sample is compared with all others of the batch. Split over the
micro-batches of a window, each sample only meets those of its own micro-batch: four micro-batches
of 64 give 63 negatives per sample, not 255. However the losses are divided, the update is not
that of the large batch.

**Fix.** Compute the embeddings of the whole window first without gradients, the loss on all of them
together, and then backpropagate the gradient of each embedding through its own micro-batch
(two passes, known as GradCache). `stepper.step(batch, loss_fn, encode=encoder, split=64)` does
that, with dropout and several encoders: `instep explain two-pass`.

**When it is fine.** If the micro-batch alone has enough negatives, or a queue or memory bank
supplies them.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from instep.rules.accumulation import fact, quoted, size_of, updates
from instep.rules.finding import Severity
from instep.rules.reading import distinct
from instep.rules.view import report
from instep.trace import Backward, Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.rules.finding import Finding
    from instep.rules.view import View
    from instep.trace import WindowRecord

CODE = "INS207"
NAME = "coupled-loss-split"
SUMMARY = "A loss that compares the samples of a batch is split over micro-batches."
SEVERITY = Severity.INFO
NEEDS = (Backward, Step)

BAD = """\
import torch


def info_nce(a, b):
    logits = a @ b.T
    return torch.nn.functional.cross_entropy(logits, torch.arange(len(a)))


optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
for update in range(1000):
    optimizer.zero_grad()
    for micro in range(4):
        a, b = next(batches)
        loss = info_nce(encoder(a), encoder(b)) / 4
        loss.backward()  # <- here
    optimizer.step()
"""

GOOD = """\
import torch


def info_nce(a, b):
    logits = a @ b.T
    return torch.nn.functional.cross_entropy(logits, torch.arange(len(a)))


optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
for a, b in loader:  # as one batch; if it does not fit, in two passes (see Fix)
    optimizer.zero_grad()
    loss = info_nce(encoder(a), encoder(b))
    loss.backward()
    optimizer.step()
"""


def judge(view: View) -> Iterator[Finding]:
    """Find losses that couple their samples in windows of several micro-batches."""
    if not any(facts.get("coupled") for facts in view.facts.values()):
        return
    yield from distinct(
        _judge(view, window, step)
        for optimizer, windows in view.windows.items()
        if not view.is_opaque(optimizer)
        for window, step in updates(windows)
        if size_of(view, window) > 1
    )


def _judge(view: View, window: WindowRecord, step: Step) -> Finding | None:
    coupled = [backward for backward in window.kept if fact(view, backward, "coupled") is True]
    if len(coupled) < 2:
        return None
    return report(
        sys.modules[__name__],
        coupled[0],
        "each sample is compared only with those of its own micro-batch, so the update of "
        f"{quoted([window.optimizer])} is not that of the window's samples together.",
        related=[(step, "stepped here")],
        evidence=[*coupled[1:], step],
    )
