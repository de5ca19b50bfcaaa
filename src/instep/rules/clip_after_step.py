"""INS302 clip-after-step

The clip comes where there is nothing to clip: after the step, when the update has already been
made from the gradients as they were, or before the backward of its window, when the gradients are
those of the last update or have just been cleared. Either way no update is ever clipped, and one
exploding batch can destroy the weights although the code says that it clips.

The order of a window is: backward, (unscale,) clip, step, clear.

**Fix.** Move the clip between the last backward and `optimizer.step()`.

**When it is fine.** If the call is only there for the norm that it returns, pass an infinite limit
to say so: `clip_grad_norm_(model.parameters(), float("inf"))`. The weights of a critic may be
clipped after the step (`p.data.clamp_(-c, c)`): those are not gradients and are not reported.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from instep.rules.finding import Severity
from instep.rules.mending import evidence, statements, step_statement
from instep.rules.moving import moves
from instep.rules.reading import distinct, is_managed, only_measures
from instep.rules.view import report, spelled
from instep.trace import Backward, Clip, Event, Step, Zero
from instep.trace.gradients import is_known

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.rules.finding import Finding, Fix
    from instep.rules.source import Source
    from instep.rules.view import View
    from instep.trace import WindowRecord

CODE = "INS302"
NAME = "clip-after-step"
SUMMARY = "Gradients are clipped after the step or before the backward, so no update is clipped."
SEVERITY = Severity.ERROR
NEEDS = (Clip,)

BAD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # <- here
"""

GOOD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
"""


_E = TypeVar("_E", bound=Event)


class _Idle(NamedTuple):
    """A clip that no update of one optimizer can feel."""

    clip: Clip
    optimizer: str
    step: Step | None  # the one it comes after
    clear: Zero | None  # what stands between that step and the clip
    backward: Backward | None  # the one it should have come after


def judge(view: View) -> Iterator[Finding]:
    """Find clips that come before any backward of their window, wherever they are run."""
    if is_managed(view):
        return
    idle: list[_Idle] = []
    useful: list[Clip] = []  # for some optimizer, as far as anybody knows
    for windows in view.windows.values():
        last = None
        for window in windows:
            _sort(window, last, idle, useful)
            last = window
    places = {clip.place for clip in useful}
    # One that is clipped in the right place as well gets the update that was asked for.
    served = {name for clip in useful for name in clip.optimizers or ()}
    yield from distinct(
        _report(one) for one in idle if one.clip.place not in places and one.optimizer not in served
    )


def _sort(
    window: WindowRecord, last: WindowRecord | None, idle: list[_Idle], useful: list[Clip]
) -> None:
    step = last.steps[0] if last and last.steps and last.backwards else None
    for at, clip in enumerate(window.events):
        if not isinstance(clip, Clip) or only_measures(clip):
            continue
        before, after = window.events[:at], window.events[at + 1 :]
        backward = _first(after, Backward) or _first(last.events if last else (), Backward)
        certain = clip.optimizers is not None and all(map(is_known, before))
        due = step is not None or _first(after, Backward) is not None
        again = not window.backwards and window.steps and _first(before, Zero) is None
        if certain and due and not again and _first(before, Backward) is None:
            clear = _first(before, Zero)
            idle.append(_Idle(clip, window.optimizer, step, clear, backward))
        else:
            useful.append(clip)


def _first(events: tuple[Event, ...], kind: type[_E]) -> _E | None:
    return next((event for event in events if isinstance(event, kind)), None)


def _report(one: _Idle) -> Finding | None:
    name = f"`{spelled(one.optimizer)}`"
    if one.step is not None and one.clear is None:
        message = f"the clip comes after the step, so no update of {name} is clipped."
    else:
        message = f"the clip comes before the backward, so no update of {name} is clipped."
    return report(
        sys.modules[__name__],
        one.clip,
        message,
        related=[
            (one.backward, "backward here"),
            (one.step, "stepped here"),
            (one.clear, "cleared here"),
        ],
        evidence=[event for event in (one.backward, one.step, one.clear) if event is not None],
    )


def mend(finding: Finding, source: Source) -> Iterator[Fix]:
    """Move the clip right before the step."""
    clip = source.statement_at(finding.place)
    step = None if clip is None else step_statement(source, finding, clip)
    yield from moves(source, "clip right before the step", clip, step)
    for backward in statements(source, evidence(finding, Backward)):
        yield from moves(source, "clip after the backward", clip, backward, after=True)
