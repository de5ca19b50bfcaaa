"""INS301 clip-inside-window

The gradients are clipped while the window is still adding them up: after each micro-batch instead
of once before the update. The first micro-batches are clipped again and again together with the
later ones, so they lose weight, and the update is not the clipped gradient of the whole window.
With a norm limit of 1 and four micro-batches, the update can depend almost only on the last one.

Clipping belongs to the close of the window: after the last backward, before the step.

**Fix.** Move the clip behind the gate that guards `optimizer.step()`, or behind the loop over the
micro-batches, right before the step.

**When it is fine.** Where each micro-batch is meant to be bounded by itself, as in differentially
private training: there each clipped gradient is copied away and `.grad` is cleared before the
next backward, which this rule does not report. A clip with an infinite limit only measures the
norm and is not reported either. Where the window's size is an option that is 1 unless somebody
gives it, this is a note; where nothing says what it is, a warning.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from instep.rules.finding import Severity
from instep.rules.mending import step_statement
from instep.rules.moving import moves
from instep.rules.reading import distinct, if_several, is_managed, only_measures, sure_size
from instep.rules.view import report, spelled
from instep.trace import Backward, Clip
from instep.trace.gradients import clears, is_known

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.rules.finding import Finding, Fix
    from instep.rules.source import Source
    from instep.rules.view import View
    from instep.trace import WindowRecord

CODE = "INS301"
NAME = "clip-inside-window"
SUMMARY = "Gradients are clipped at every micro-batch instead of once before the update."
SEVERITY = Severity.ERROR
MILDEST = Severity.INFO
NEEDS = (Clip,)

BAD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for update in range(1000):
    optimizer.zero_grad()
    for micro in range(4):
        x, y = next(batches)
        loss = torch.nn.functional.cross_entropy(model(x), y) / 4
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # <- here
    optimizer.step()
"""

GOOD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for update in range(1000):
    optimizer.zero_grad()
    for micro in range(4):
        x, y = next(batches)
        loss = torch.nn.functional.cross_entropy(model(x), y) / 4
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
"""


def judge(view: View) -> Iterator[Finding]:
    """Find clips that the same loss is backpropagated after, in the same window."""
    if not is_managed(view):
        found = (_judge(view, w) for windows in view.windows.values() for w in windows)
        yield from distinct(finding for findings in found for finding in findings)


def _judge(view: View, window: WindowRecord) -> Iterator[Finding | None]:
    if not window.steps:
        return  # what is left there by the losses of another optimizer
    for at, clip in enumerate(window.events):
        if not isinstance(clip, Clip) or clip.optimizers is None or only_measures(clip):
            continue
        before = _backwards(window, at, -1)
        after = [later for later in _backwards(window, at, 1) if not _is_lost(window, later)]
        if any(_is_again(later, earlier) for later in after for earlier in before):
            yield report(
                sys.modules[__name__],
                clip,
                _message(view, window, clip, is_early=_is_early(window, clip)),
                severity=if_several(view, window, Severity.ERROR),
                related=[
                    (after[0], "more gradients are added here"),
                    *((step, "stepped here") for step in window.steps),
                ],
                evidence=[*before, *after, *window.steps],
            )


def _backwards(window: WindowRecord, at: int, direction: int) -> list[Backward]:
    """Collect the backwards before or after an event, up to a clear or something unknown."""
    found = []
    events = window.events[at + 1 :] if direction > 0 else window.events[:at][::-1]
    for event in events:
        if clears(event) or not is_known(event):
            break
        if isinstance(event, Backward):
            found.append(event)
    return found[::direction]


def _is_lost(window: WindowRecord, backward: Backward) -> bool:
    """Say whether a clear came before the step."""
    return any(backward is lost for lost in window.lost)


def _is_again(later: Backward, earlier: Backward) -> bool:
    # Two losses, each with the clip of its own network, are not two micro-batches.
    if later.place is None or later.place != earlier.place:
        return False
    if later.models is None or earlier.models is None:
        return True
    return later.models == earlier.models or not set(later.models).isdisjoint(earlier.models)


def _is_early(window: WindowRecord, clip: Clip) -> bool:
    """Say whether a clip stands before its backward: the first one meets cleared gradients."""
    at = next(i for i, event in enumerate(window.events) if event.place == clip.place)
    return not _backwards(window, at, -1)


def _message(view: View, window: WindowRecord, clip: Clip, *, is_early: bool) -> str:
    name = f"`{spelled(window.optimizer)}`"
    times = sum(event.place == clip.place for event in window.of(Clip))
    size = sure_size(view, window)
    if is_early and times > 1:
        often = f"{times - 1} times" if times == size else "at every micro-batch but the first"
        return (
            f"the gradients of {name} are clipped {often} while they add up, "
            "and never as a whole: the last backward comes after the last clip."
        )
    if times == 1:
        return f"the clip is followed by more backwards, so the update of {name} is not clipped."
    often = f"{times} times" if times == size else "at every micro-batch"
    return (
        f"the gradients of {name} are clipped {often} while they add up, "
        "instead of once as a whole before the update."
    )


def mend(finding: Finding, source: Source) -> Iterator[Fix]:
    """Move the clip right before the step."""
    clip = source.statement_at(finding.place)
    step = None if clip is None else step_statement(source, finding, clip)
    yield from moves(source, "clip right before the step", clip, step)
