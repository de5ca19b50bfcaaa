"""INS303 clip-before-unscale

The loss was multiplied by the scaler's loss scale, and the gradients still carry that factor when
they are clipped. The scale starts at 65536 by default, so nearly every gradient is over the limit
and is cut down to it; `scaler.step` then divides by the scale. The update that remains is smaller
than the limit by a factor of the scale, and its size follows the scale instead of the gradients.

**Fix.** Call `scaler.unscale_(optimizer)` after the last backward of the window and before the
clip, once per update. `scaler.step` notices and does not divide again.

**When it is fine.** If the scaler is switched off (`enabled=False`) nothing is scaled. A wrapper
that unscales by itself, such as `accelerator.clip_grad_norm_`, does this already. A limit that is
multiplied by `scaler.get_scale()` is as large as the gradients are; it is not reported. Nor does
`instep watch` report `clip_grads_with_norm_`: the norm that it is given may be without the scale.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from instep.rules.finding import Severity
from instep.rules.mending import evidence
from instep.rules.moving import inserts, moves
from instep.rules.reading import distinct, is_hidden, is_managed, only_measures
from instep.rules.scaler_names import unscaling
from instep.rules.scaling import is_of_scale, may_scale, most_scaled, scale_of, scaler_of
from instep.rules.view import report, spelled
from instep.trace import Backward, Clip, Step, Unscale
from instep.trace.gradients import clears

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from instep.rules.finding import Finding, Fix
    from instep.rules.source import Source
    from instep.rules.view import View
    from instep.trace import Event, Place, WindowRecord

CODE = "INS303"
NAME = "clip-before-unscale"
SUMMARY = "Gradients are clipped while they are still multiplied by the loss scale."
SEVERITY = Severity.ERROR
NEEDS = (Clip, Backward)

BAD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # <- here
    scaler.step(optimizer)
    scaler.update()
"""

GOOD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
"""


def judge(view: View) -> Iterator[Finding]:
    """Find clips of gradients that a scaled backward left and nothing has unscaled."""
    if not is_managed(view) and may_scale(view, None):
        found = (_judge(view, w) for windows in view.windows.values() for w in windows)
        yield from distinct(finding for findings in found for finding in findings)


def _judge(view: View, window: WindowRecord) -> Iterator[Finding | None]:
    if not may_scale(view, scaler_of(window)):
        return
    for at, clip in enumerate(window.events):
        if not isinstance(clip, Clip) or clip.optimizers is None or only_measures(clip):
            continue
        if clip.scaled or (clip.place is not None and clip.place in view.read(_scaled)):
            continue  # the limit is multiplied by the scale as well
        before = _in_gradients(window.events[:at])
        backwards = [event for event in before if isinstance(event, Backward)]
        scaled = [backward for backward in backwards if backward.scaled]
        if not scaled or is_hidden(before) or any(isinstance(event, Unscale) for event in before):
            continue
        if any(clears(event) for event in window.events[at:]):
            continue  # what was clipped reaches no update
        unscales = [event for event in window.events[at:] if isinstance(event, Unscale)]
        yield report(
            sys.modules[__name__],
            clip,
            _message(view, window, clip),
            related=[
                (scaled[-1], "scaled here"),
                *((unscale, "unscaled here, too late") for unscale in unscales),
                *((step, "stepped here") for step in window.steps),
            ],
            evidence=[*scaled, *unscales, *window.steps],
        )


def _scaled(view: View) -> set[Place | None]:
    """Return where a running job clips to limits that follow the loss scale.

    The scale may be another one by now, so one such limit at a place speaks for all.
    """
    scale = scale_of(view, None)
    return {clip.place for clip in view.trace.of(Clip) if is_of_scale(clip.limit, scale)}


def _in_gradients(events: Sequence[Event]) -> Sequence[Event]:
    after = [at + 1 for at, event in enumerate(events) if clears(event)]
    return events[after[-1] :] if after else events


def _message(view: View, window: WindowRecord, clip: Clip) -> str:
    scale = most_scaled(view, scaler_of(window))
    if scale is not None and scale > 1:
        return (
            f"this clip saw gradients of `{spelled(window.optimizer)}` that are up to "
            f"{scale:,.6g}× too large: they are still multiplied by the loss scale."
        )
    limit = "" if clip.limit is None else f" to {clip.limit:g}"
    return (
        f"the gradients of `{spelled(window.optimizer)}` are clipped{limit} while they are still "
        "multiplied by the loss scale, so the limit is that many times too tight."
    )


def mend(finding: Finding, source: Source) -> Iterator[Fix]:
    """Unscale before the clip whatever it clips."""
    clip = source.statement_at(finding.place)
    if clip is None:
        return
    for unscale in evidence(finding, Unscale):
        late = source.statement_at(unscale.place)
        yield from moves(source, "unscale before the clip", late, clip)
    steps = [step.place for step in evidence(finding, Step)]
    others = [spelled(name) for name in finding.evidence[0].touches() or ()]
    for code in unscaling(source, clip, steps, others):
        yield from inserts(source, "unscale before the clip", code, clip)
