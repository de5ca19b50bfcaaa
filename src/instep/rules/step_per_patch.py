"""INS103 step-per-patch

A batch was cut into pieces, because the whole does not fit into memory, and the optimizer steps
after each piece. The batch is no longer what an update is made of: there are as many updates as
pieces, each from a small, related part of the data, and later pieces meet weights that earlier
ones have already moved. If the clear stands outside the loop, each update also contains the
pieces before it.

**Fix.** Clear before the loop over the pieces, divide each loss by their number, and step once
after the loop. Patches of an image still end where the image goes on, so that this is the sum over
independent patches; `stepper.step((image, target), loss_fn, split=instep.Patches(256))` has the
gradient of the whole image: `instep explain patches`.

**When it is fine.** One update per piece is ordinary stochastic gradient descent with a smaller
batch. If that is what you want, and the gradients are cleared for each piece, ignore this rule.
Slices of what is gone through several times, as PPO does with a rollout, are taken for mini-batches
and not reported. Slices of something that no loader gave, such as mini-batches of one file after
another, are only a note, by `instep check`. `instep watch` knows a batch by the loader that gave
it, and tells of pieces that were together the whole of one: crops drawn at random are images of
their own.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from instep.rules.accumulation import quoted
from instep.rules.finding import Severity
from instep.rules.patches import Piecewise, piecewise
from instep.rules.piece_mends import step_after_pieces
from instep.rules.reading import distinct
from instep.rules.view import report
from instep.trace import Drawn, Step, Zero

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.rules.finding import Finding, Fix
    from instep.rules.source import Source
    from instep.rules.view import View

CODE = "INS103"
NAME = "step-per-patch"
SUMMARY = "The optimizer steps after every piece of a batch instead of once per batch."
SEVERITY = Severity.WARNING
MILDEST = Severity.INFO
NEEDS = (Drawn, Step)

BAD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for image, target in loader:
    for patch, part in zip(image.split(256, -1), target.split(256, -1)):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(patch), part)
        loss.backward()
        optimizer.step()  # <- here
"""

GOOD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for image, target in loader:
    patches = image.split(256, -1)
    optimizer.zero_grad()
    for patch, part in zip(patches, target.split(256, -1)):
        loss = torch.nn.functional.mse_loss(model(patch), part) / len(patches)
        loss.backward()
    optimizer.step()
"""


def judge(view: View) -> Iterator[Finding]:
    """Find optimizers that step more than once for the pieces of one batch."""
    yield from distinct(_report(view, found) for found in piecewise(view))


def _report(view: View, found: Piecewise) -> Finding | None:
    facts = view.facts.get(found.drawn.loader or "", {})
    if facts.get("again"):
        return None  # mini-batches of what is gone through several times, as a rollout is
    type_ = facts.get("type")
    if not found.is_patches and "range(" in f"{found.drawn.loader} {type_}":
        return None  # repeated updates on one batch, as of a critic, are no pieces of it
    is_sure = found.is_patches and not facts.get("shard")
    noun, plural = ("patch", "patches") if is_sure else ("piece", "pieces")
    return report(
        sys.modules[__name__],
        found.step,
        f"{quoted([found.optimizer])} steps after every {noun} of a batch: the weights move "
        f"between the {plural} of one batch, and no update is made of the whole.",
        severity=Severity.WARNING if is_sure else Severity.INFO,
        related=[(found.backward, "backward here"), (found.drawn, "a piece is taken here")],
        evidence=[
            *([] if found.backward is None else [found.backward]),
            *(z for z in view.trace.of(Zero) if found.optimizer in (z.optimizers or ())),
            found.drawn,
        ],
    )


def mend(finding: Finding, source: Source) -> Iterator[Fix]:
    """Clear before the loop over the pieces, step after it, and take their mean."""
    yield from step_after_pieces(finding, source)
