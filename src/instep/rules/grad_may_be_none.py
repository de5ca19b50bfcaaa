"""INS501 grad-may-be-none

`.grad` is used where it is `None`: before the first backward, after `zero_grad()` has dropped the
gradients, or on parameters that are frozen. The line raises `AttributeError: 'NoneType' object has
no attribute ...`, or a sum over the gradients silently leaves parameters out.

Of a parameter that the loss does not reach, it is `None` as well: a layer that is not used, or not
used for this batch. Only a running job shows that, and only if it ends with it.

`zero_grad()` sets gradients to `None` since torch 2.0; before that it filled them with zeros, which
is why old code reads them at any time.

**Fix.** Read gradients after the backward and before they are cleared, and skip those that are
`None`: `[p.grad for p in model.parameters() if p.grad is not None]`. To clear gradients by hand,
`p.grad = None` needs no test.

**When it is fine.** Behind a test that the gradient is not `None`, or inside a `try`: what stands
behind a test is not reported. Nor is what follows a clear in a project whose README or requirements
name a torch from before 2.0.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from instep.rules.finding import Severity
from instep.rules.reading import distinct, is_for_torch_before, is_part
from instep.rules.view import report, spelled
from instep.trace import Backward, Created, GradEdited, GradRead, Opaque, Zero

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.rules.finding import Finding
    from instep.rules.view import View
    from instep.trace import Event

CODE = "INS501"
NAME = "grad-may-be-none"
SUMMARY = "A gradient is used where it is None."
SEVERITY = Severity.WARNING
NEEDS = (GradRead,)

BAD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    for p in model.parameters():
        print(p.grad.norm())  # <- here
"""

GOOD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    for p in model.parameters():
        if p.grad is not None:
            print(p.grad.norm())
    optimizer.step()
    optimizer.zero_grad()
"""


def judge(view: View) -> Iterator[Finding]:
    """Find looks at gradients that nothing has filled."""
    yield from distinct(_judge(view))


def _judge(view: View) -> Iterator[Finding | None]:
    empty: dict[str, Event] = {}  # optimizers without any gradient, and what shows it
    frozen: dict[str, Created] = {}
    filled = False  # by any backward: another optimizer may hold the same parameters
    fills = is_for_torch_before(view, 2, 0)  # zeros were what cleared gradients held
    for event in view.events:
        match event:
            case Created(role="optimizer"):
                if event.facts.get("written") is True and not filled:
                    empty[event.id] = event
                else:
                    empty.pop(event.id, None)
            case Created(role="model"):
                frozen.pop(event.id, None)
                if event.facts.get("frozen") is True:
                    frozen[event.id] = event
            case Backward() | GradEdited() | Opaque():
                # Whose parameters a loss does not reach is never quite certain: a loss has some of
                # its own, one of its terms is left out on this path, a model is a copy.
                filled = True
                empty.clear()
            case Zero() if event.complete and event.set_to_none is not False and not fills:
                empty.update(dict.fromkeys(event.optimizers or (), event))
            case GradRead(guarded=False):
                # Where no backward is seen at all, whoever calls this has done it.
                if filled or view.trace.of(Backward) or event.parameter is not None:
                    yield _judge_read(view, event, empty, frozen) or _judge_crash(view, event)


def _judge_read(
    view: View, read: GradRead, empty: dict[str, Event], frozen: dict[str, Created]
) -> Finding | None:
    model = next((m for m in frozen if read.parameter and is_part(read.parameter, m)), None)
    if model is not None:
        message = f"`{spelled(model)}` is frozen, so the gradients of its parameters are None."
        return _report(read, message, (frozen[model], "frozen"))
    optimizers = read.optimizers or ()
    if not optimizers or not all(name in empty for name in optimizers):
        return None
    if any(_holds_unknown(view, name) for name in optimizers):
        return None  # copies of these parameters, perhaps
    name, shown = f"`{spelled(optimizers[0])}`", empty[optimizers[0]]
    if isinstance(shown, Zero):
        message = f"the gradients of {name} are None here: cleared, and not filled again."
        return _report(read, message, (shown, "cleared here"))
    message = f"the gradients of {name} are None here: no backward has filled them yet."
    return _report(read, message, (shown, "made here"))


def _judge_crash(view: View, read: GradRead) -> Finding | None:
    """Tell of the parameter that has ended a running job: what it has no gradient of is seen."""
    backwards = view.trace.of(Backward)
    is_seen = view.facts.get("job", {}).get("source") == "watch"
    if not is_seen or read.parameter is None or not backwards:
        return None
    message = (
        f"the gradient of `{read.parameter}` is None here: no backward has filled it, or none "
        "since it was cleared."
    )
    return _report(read, message, (backwards[-1], "the latest backward"))


def _holds_unknown(view: View, optimizer: str) -> bool:
    """Say whether the source makes an optimizer of parameters that it does not show to be a
    model's.
    """
    facts = view.facts.get(optimizer, {})
    is_read = view.facts.get("job", {}).get("source") == "check"
    return is_read and facts.get("written") is True and not facts.get("models")


def _report(read: GradRead, message: str, shown: tuple[Event, str]) -> Finding | None:
    return report(sys.modules[__name__], read, message, related=[shown], evidence=[shown[0]])
