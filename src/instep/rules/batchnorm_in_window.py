"""INS206 batchnorm-in-window

BatchNorm in training mode normalises each micro-batch by its own mean and variance, and moves its
running statistics once per micro-batch. A window of four micro-batches is therefore not one batch
four times as large, whatever the loss is divided by: the statistics are noisier, and the running
ones adapt four times as fast. Nothing in a plain loop can repair that.

**Fix.** Use a normalisation that does not look at other samples (GroupNorm, LayerNorm), keep
BatchNorm in eval mode when fine-tuning, or lower its momentum to match the window. Where the batch
is there as a whole, `stepper.step(batch, loss_fn, split=64, batchnorm="window")` normalises every
piece by the statistics of all, which repairs the forward and the running statistics;
`batchnorm="exact"` has the gradient of the whole batch, too: `instep explain batchnorm`. For
patches of an image GroupNorm is no way out, because it looks at the whole image.

**When it is fine.** If the micro-batches are large enough for their own statistics, which is what
most published recipes assume.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from instep.rules.accumulation import counted, quoted, size_of, updates
from instep.rules.finding import Severity
from instep.rules.reading import distinct, is_part, names, sure_size
from instep.rules.view import report, spelled
from instep.trace import Backward, Forward, Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.rules.finding import Finding
    from instep.rules.view import View
    from instep.trace import WindowRecord

CODE = "INS206"
NAME = "batchnorm-in-window"
SUMMARY = "BatchNorm sees one micro-batch at a time, not the window."
SEVERITY = Severity.INFO
NEEDS = (Forward, Step)

BAD = """\
import torch

model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model.train()
for update in range(1000):
    optimizer.zero_grad()
    for micro in range(4):
        x, y = next(batches)
        loss = torch.nn.functional.cross_entropy(model(x), y) / 4  # <- here
        loss.backward()
    optimizer.step()
"""

GOOD = """\
import torch

model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model.train()
for update in range(1000):
    optimizer.zero_grad()
    for micro in range(4):
        x, y = next(batches)
        loss = torch.nn.functional.cross_entropy(model(x), y) / 4
        loss.backward()
    optimizer.step()
"""


def judge(view: View) -> Iterator[Finding]:
    """Find forwards of models with BatchNorm, in training mode, in windows of several."""
    if not any(facts.get("batchnorm") for facts in view.facts.values()):
        return
    yield from distinct(
        finding
        for optimizer, windows in view.windows.items()
        if not view.is_opaque(optimizer)
        for window, step in updates(windows)
        if size_of(view, window) > 1
        for finding in _findings(view, window, step)
    )


def _findings(view: View, window: WindowRecord, step: Step) -> Iterator[Finding | None]:
    size = sure_size(view, window)
    whole = "the window" if size is None else f"the window of {counted(size)}"
    for forward in _backpropagated(window):
        if (
            forward.training is True
            and forward.model is not None
            and view.facts.get(forward.model, {}).get("batchnorm") is True
            and _trains(view, window, forward.model)
        ):
            yield report(
                sys.modules[__name__],
                forward,
                f"BatchNorm in `{spelled(forward.model)}` normalises each micro-batch by its own "
                f"statistics, so the update of {quoted([window.optimizer])} is not that of "
                f"{whole}.",
                related=[(step, "stepped here")],
                evidence=[*window.kept, step],
            )


def _backpropagated(window: WindowRecord) -> Iterator[Forward]:
    """Give the last forward of each model before each backward: an evaluation in between is none
    that a loss came from.
    """
    last: dict[str | None, Forward] = {}
    for event in window.events:
        if isinstance(event, Forward):
            last[event.model] = event
        elif isinstance(event, Backward):
            yield from last.values()
            last.clear()


def _trains(view: View, window: WindowRecord, model: str) -> bool:
    """Say whether the losses of a window come from a model, several times."""
    known = [backward.models for backward in window.kept if backward.models is not None]
    if len(known) == len(window.kept):
        return sum(any(is_part(model, m) or is_part(m, model) for m in ms) for ms in known) > 1
    held = names(view.facts.get(window.optimizer, {}).get("models")) or ()
    return any(is_part(model, m) or is_part(m, model) for m in held)
