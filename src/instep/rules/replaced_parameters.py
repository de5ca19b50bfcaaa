"""INS503 replaced-parameters

A layer or model was replaced after the optimizer was made. An optimizer holds the parameters it was
given, not the model: it goes on updating the old ones, which nothing uses any more, while the new
ones are never trained. The loss may still fall, because the rest of the model learns around it.

Moving or casting a model (`model.to(device)`, `model.half()`) keeps its parameters and is not
meant. Replacing a head, wrapping a layer in `weight_norm`, building the model again, or resizing
the embeddings after tokens were added is. A whole model that takes another one's place, and
embeddings that are resized, are reported as a warning: in the repositories that this rule was
measured on, none of the few findings of these two kinds was right. The new model had an optimizer
of its own or was a copy to keep, and the embeddings had the right size already. So is a layer that
is replaced again and again while the training goes on: a solver may train it in that way.

**Fix.** Replace first, make the optimizer afterwards; or hand the new parameters over with
`optimizer.add_param_group({"params": model.head.parameters()})`.

**When it is fine.** If the new layer is not meant to be trained: freeze it
(`requires_grad_(False)`). A layer without parameters, or one around the old layer, replaces none,
nor do `spectral_norm` and `orthogonal`, which keep the parameters under another name.
`resize_token_embeddings` keeps embeddings that have the size already: it is reported only where the
tokenizer was given new tokens, and the model no room for them yet.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from instep.rules.finding import Severity
from instep.rules.reading import distinct, is_part, names
from instep.rules.view import report, spelled
from instep.trace import Backward, Created, Opaque, Rebound, Step

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from instep.rules.finding import Finding
    from instep.rules.view import View
    from instep.trace import Event

CODE = "INS503"
NAME = "replaced-parameters"
SUMMARY = "Parameters were replaced after the optimizer was made, so the new ones are not trained."
SEVERITY = Severity.ERROR
MILDEST = Severity.WARNING
NEEDS = (Rebound, Step)

BAD = """\
import torch
import torchvision

model = torchvision.models.resnet18()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model.fc = torch.nn.Linear(512, 5)  # <- here
for x, y in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""

GOOD = """\
import torch
import torchvision

model = torchvision.models.resnet18()
model.fc = torch.nn.Linear(512, 5)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""


def judge(view: View) -> Iterator[Finding]:
    """Find replacements of what an optimizer holds, with updates after them."""
    yield from distinct(
        _judge(view, at, event)
        for at, event in enumerate(view.events)
        if isinstance(event, Rebound) and event.parameters
    )


def _judge(view: View, at: int, rebound: Rebound) -> Finding | None:
    held = (model for facts in view.facts.values() for model in names(facts.get("models")) or ())
    if rebound.now is not None and any(_is_inside(view, model, rebound.now) for model in held):
        return None  # handed over as a group of its own, or in parts
    if view.facts.get(str(rebound.now), {}).get("frozen"):
        return None
    holders: dict[str, Created] = {}
    for event in view.events[:at]:
        if type(event) is Created and event.role == "optimizer":
            holders.pop(event.id, None)
            if any(_held(rebound, model) for model in names(event.facts.get("models")) or ()):
                holders[event.id] = event
    after = view.events[at + 1 :]
    if not holders or _is_handed_over(rebound, after):
        return None
    for optimizer, made in holders.items():
        step = _trained(view, optimizer, rebound, after)
        if step is not None:
            return report(
                sys.modules[__name__],
                rebound,
                f"`{spelled(rebound.name)}` is replaced after `{spelled(optimizer)}` was made, "
                "which goes on updating the old parameters: the new ones are never trained.",
                severity=_severity(view, rebound, after),
                related=[(made, "optimizer made here"), (step, "stepped here")],
                evidence=[made, step],
            )
    return None


def _severity(view: View, rebound: Rebound, after: Sequence[Event]) -> Severity:
    """Be sure of one layer that is replaced once: what is replaced again and again may be trained
    in that way, as by a solver, or be begun anew on purpose.
    """
    if not _is_layer(view, rebound) or any(_is_again(rebound, event) for event in after):
        return Severity.WARNING
    return Severity.ERROR


def _is_again(rebound: Rebound, event: Event) -> bool:
    return isinstance(event, Rebound) and event.place == rebound.place


def _is_layer(view: View, rebound: Rebound) -> bool:
    """Say whether one layer of a model was replaced by name, not its embeddings or all of it."""
    if rebound.now is None:
        return not rebound.name.endswith(".embeddings")  # as the resizing of them is called
    inside = rebound.was not in {None, rebound.name} and is_part(rebound.name, str(rebound.was))
    return inside or _is_inside(view, rebound.now, rebound.was)


def _held(rebound: Rebound, model: str) -> bool:
    """Say whether an optimizer that holds a model holds what was replaced, or a part of it."""
    # `was` may be the whole that a layer was replaced in: its other parts are not concerned.
    inside = rebound.was is not None and is_part(rebound.was, model)
    return inside or is_part(rebound.name, model) or is_part(model, rebound.name)


def _concerns(rebound: Rebound, model: str) -> bool:
    return any(
        is_part(name, model) or is_part(model, name)
        for name in (rebound.was, rebound.name)
        if name is not None
    )


def _is_handed_over(rebound: Rebound, after: Sequence[Event]) -> bool:
    """Say whether the new parameters may reach an optimizer later, or are frozen."""
    for event in after:
        match event:
            case Opaque():
                return True
            case Created(role="optimizer"):
                models = names(event.facts.get("models"))
                if models is None or any(_concerns(rebound, model) for model in models):
                    return True
            case Created(role="model") if event.facts.get("frozen"):
                if event.id == rebound.now or _concerns(rebound, event.id):
                    return True
    return False


def _is_inside(view: View, model: str, whole: str | None) -> bool:
    """Say whether a model is another one, or a part of it."""
    found: object = model
    seen = set()
    while isinstance(found, str) and found not in seen:
        if whole is not None and is_part(found, whole):
            return True
        seen.add(found)
        found = view.facts.get(found, {}).get("part_of")
    return False


def _uses(view: View, event: Backward, model: str | None) -> bool:
    """Say whether a backward is that of a loss that came from a model."""
    return any(_is_inside(view, part, model) for part in event.models or ())


def _trained(view: View, optimizer: str, rebound: Rebound, after: Sequence[Event]) -> Step | None:
    """Return the first step of an optimizer that follows a backward through the new parameters."""
    whole = rebound.now is not None and not _is_inside(view, rebound.now, rebound.was)
    backwards = (event for event in after if isinstance(event, Backward))
    if whole and any(_uses(view, event, rebound.was) for event in backwards):
        return None  # it is still there under another name: the new one is a copy, or a second one
    used = False
    for event in after:
        match event:
            case Backward():
                used = used or _uses(view, event, rebound.now)
                if not whole:
                    used = used or any(_concerns(rebound, model) for model in event.models or ())
            case Step() if used and event.optimizer == optimizer:
                return event
    return None
