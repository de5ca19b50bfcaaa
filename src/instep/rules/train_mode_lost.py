"""INS604 train-mode-lost

A model is put into eval mode, usually to measure it, and the training goes on without putting it
back. From then on dropout is off and BatchNorm uses its old statistics instead of those of the
batch, which it no longer updates: the updates are made for another network than before, and the
model overfits or stops improving after the first evaluation.

**Fix.** Call `model.train()` at the start of every epoch, or at the end of the function that calls
`model.eval()`.

**When it is fine.** Fine-tuning in eval mode on purpose, to keep the statistics of a pretrained
model: a model that was never trained in train mode is not reported, nor is one whose BatchNorm
layers alone are in eval mode, nor one that a function uses which puts another model into train
mode: it names those that it trains. A model without dropout and BatchNorm does not notice the mode,
nor does one that took such layers over from a model in eval mode and was never in train mode.

It is a note where no layer that notices the mode is seen in the model: one that a function is given
may have some.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from typing import TYPE_CHECKING

from instep.rules.finding import Severity
from instep.rules.mending import evidence, loop_apart
from instep.rules.moving import inserts, moves
from instep.rules.reading import distinct
from instep.rules.spelling import receiver
from instep.rules.view import report, spelled
from instep.trace import Backward, Forward, Mode, Step
from instep.trace.plain import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.rules.finding import Finding, Fix
    from instep.rules.source import Source
    from instep.rules.view import View
    from instep.trace import Event, Place

CODE = "INS604"
NAME = "train-mode-lost"
SUMMARY = "The model stays in eval mode after an evaluation, and the training goes on."
SEVERITY = Severity.WARNING
MILDEST = Severity.INFO
NEEDS = (Mode, Step)

BAD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model.train()
for epoch in range(10):
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    model.eval()  # <- here
    with torch.no_grad():
        print(sum((model(x).argmax(1) == y).sum().item() for x, y in test_loader))
"""

GOOD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(10):
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        print(sum((model(x).argmax(1) == y).sum().item() for x, y in test_loader))
"""


@dataclass(slots=True)
class _Model:
    """What has happened to one model so far."""

    train: Mode | None = None  # the latest call of either kind
    eval_: Mode | None = None
    is_eval: bool = False
    is_used: bool = False  # since it was put into train mode
    forward: Forward | None = None  # not yet backpropagated
    trained_at: set[Place | None] = field(default_factory=set)  # forwards in train mode
    lost: tuple[Forward, Backward] | None = None  # in eval mode, and not yet used by an update


def judge(view: View) -> Iterator[Finding]:
    """Find updates from a forward in eval mode, by a model that was meant to be in train mode."""
    if not all(mode.training for mode in view.trace.of(Mode)):
        yield from distinct(_judge(view))


def _judge(view: View) -> Iterator[Finding | None]:
    models: dict[str, _Model] = defaultdict(_Model)
    modeless = {name for name, facts in view.facts.items() if facts.get("modeless")}
    trained = {(_function(mode), mode.model) for mode in view.trace.of(Mode) if mode.training}
    for event in view.events:
        match event:
            case Forward() if event.model is not None:
                model = models[event.model]
                model.forward, model.is_used = event, True
            case Backward():
                for name in event.models or ():
                    if name in models:
                        others = {at for at, model in trained if model != name}
                        _train(models[name], event, others)
            case Mode() if event.model is not None and event.model not in modeless:
                _switch(models[event.model], event)
            case Step():
                for name, model in models.items():
                    if model.lost and event.optimizer in (model.lost[1].optimizers or ()):
                        yield _report(view, name, model, event)
                        model.lost = None


def _switch(model: _Model, mode: Mode) -> None:
    if mode.training:
        # Back in time for the update: what ran in eval mode was an attack or a sample.
        model.train, model.lost = mode, None
        model.is_eval = model.is_used = False
        return
    # One after the other in one function is a choice: train mode but for this case.
    chosen = model.train is not None and not model.is_used and _function(model.train) is not None
    model.is_eval = not (chosen and _function(mode) == _function(model.train))
    model.eval_ = mode


def _train(model: _Model, backward: Backward, others: set[str | None]) -> None:
    forward, model.forward = model.forward, None
    if forward is None:
        return
    if forward.training:
        model.trained_at.add(forward.place)
    elif (
        forward.training is False and model.is_eval and _was_meant_to_train(model, forward, others)
    ):
        model.lost = forward, backward


def _was_meant_to_train(model: _Model, forward: Forward, others: set[str | None]) -> bool:
    """Say whether a model trains in eval mode by accident; `others` are functions that put another
    model into train mode.
    """
    if forward.place is not None and forward.place in model.trained_at:
        return True  # the same line, in both modes
    # Switched by a function that evaluates, after somebody asked for train mode.
    switched, run = _function(model.eval_), _function(forward)
    known = None not in {switched, run} and run not in others
    return model.train is not None and known and switched != run


def _function(event: Event | None) -> str | None:
    return None if event is None or event.place is None else event.place.function


def _severity(view: View, name: str) -> Severity:
    """Say how bad it is: nobody minds where nothing in the model notices the mode. A running job
    has asked the model itself.
    """
    is_read = view.facts.get("job", {}).get("source") == "check"
    is_seen = view.facts.get(name, {}).get("moded")
    return Severity.INFO if is_read and not is_seen else SEVERITY


def _report(view: View, name: str, model: _Model, step: Step) -> Finding | None:
    if model.lost is None or model.eval_ is None:
        return None
    forward, backward = model.lost
    shown = [event for event in (model.train, forward, backward, step) if event is not None]
    return report(
        sys.modules[__name__],
        model.eval_,
        f"`{spelled(name)}` is still in eval mode when training goes on: what dropout and "
        "BatchNorm it has is switched off in those updates.",
        severity=_severity(view, name),
        related=[
            (forward, "trained in eval mode here"),
            (backward, "backward here"),
            (model.train, "in train mode before"),
        ],
        evidence=shown,
    )


def mend(finding: Finding, source: Source) -> Iterator[Fix]:
    """Ask for train mode before the loop over the batches, or where the evaluation ends."""
    switch, call = source.statement_at(finding.place), source.call_at(finding.place)
    model = None if call is None else receiver(call)
    forward = next((source.call_at(event.place) for event in evidence(finding, Forward)), None)
    if switch is None or model is None or forward is None:
        return
    name = source.code(model)
    title = f"put `{name}` back into train mode"
    loop: ast.stmt | None = loop_apart(source, forward, switch)
    trained = name
    if source.scope(switch) is not source.scope(forward):
        loops = source.loops(forward)
        loop, trained = loops[0] if len(loops) > 1 else None, source.code(forward.func)
    if loop is not None:
        for mode in evidence(finding, Mode):
            if mode.training:
                yield from moves(source, title, source.statement_at(mode.place), loop)
        yield from inserts(source, title, f"{trained}.train()", loop)
    block = source.block(switch)
    if block is not None and not isinstance(block.statements[-1], ast.Return):
        yield from inserts(source, title, f"{name}.train()", block.statements[-1], after=True)
