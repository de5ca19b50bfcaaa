"""INS603 sync-every-micro-batch

`DistributedDataParallel` averages the gradients over all ranks at every backward. Gradients that
are accumulated need that only once per update: the average of a sum is the sum of the averages.
The update is right, but with four micro-batches per window all gradients travel four times.

**Fix.** Run all micro-batches but the last under `model.no_sync()`. The flag is read in the
forward, so the forward must be inside, not only the backward.

**When it is fine.** If memory is short: under `no_sync` each rank keeps its own gradients until
the window closes, which sharded training (`fsdp`) may not have room for.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from instep.rules.finding import Severity
from instep.rules.reading import distinct, is_managed, sure_size
from instep.rules.view import report, spelled
from instep.trace import Backward, Forward, Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.rules.finding import Finding
    from instep.rules.view import View
    from instep.trace import WindowRecord

CODE = "INS603"
NAME = "sync-every-micro-batch"
SUMMARY = "Gradients are reduced over the ranks at every micro-batch instead of once per update."
SEVERITY = Severity.INFO
NEEDS = (Forward, Step)

BAD = """\
import torch

model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for update in range(1000):
    optimizer.zero_grad()
    for micro in range(4):
        x, y = next(batches)
        output = model(x)  # <- here
        loss = torch.nn.functional.cross_entropy(output, y) / 4
        loss.backward()
    optimizer.step()
"""

GOOD = """\
import contextlib

import torch

model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for update in range(1000):
    optimizer.zero_grad()
    for micro in range(4):
        x, y = next(batches)
        with model.no_sync() if micro < 3 else contextlib.nullcontext():
            loss = torch.nn.functional.cross_entropy(model(x), y) / 4
            loss.backward()
    optimizer.step()
"""


def judge(view: View) -> Iterator[Finding]:
    """Find forwards that ask for a reduction before the last micro-batch of a window."""
    spread = any(facts.get("distributed") == "ddp" for facts in view.facts.values())
    if spread and not is_managed(view):
        found = (_judge(view, w) for windows in view.windows.values() for w in windows)
        yield from distinct(found)


def _judge(view: View, window: WindowRecord) -> Finding | None:
    if window.closed_by != "step" or not window.certain or window.micro_batches < 2:
        return None
    pairs = [
        (forward, backward)
        for forward, backward in _pairs(window)
        if view.facts.get(forward.model or "", {}).get("distributed") == "ddp"
    ]
    # From one place, again and again: two networks, or real and fake, are not two micro-batches.
    places = [forward.place for forward, _ in pairs]
    early = [
        pair for at, pair in enumerate(pairs) if pair[0].sync and pair[0].place in places[at + 1 :]
    ]
    if not early:
        return None
    forward, backward = early[0]
    size = sure_size(view, window)
    times = sum(pair[0].place == forward.place for pair in early) + 1
    often = f"{size} times per update" if times == size else "at every micro-batch"
    return report(
        sys.modules[__name__],
        forward,
        f"the gradients of `{spelled(forward.model or '')}` are reduced over all ranks {often}, "
        "where once per update is enough.",
        related=[(backward, "reduced here"), (window.steps[0], "updated here")],
        evidence=[backward, window.steps[0]],
    )


def _pairs(window: WindowRecord) -> Iterator[tuple[Forward, Backward]]:
    """Yield each backward with the latest forward of a model that its loss came from."""
    latest: dict[str | None, Forward] = {}
    for event in window.events:
        match event:
            case Forward():
                latest[event.model] = event
            case Backward():
                for model in event.models or ():
                    if model in latest:
                        yield latest.pop(model), event
