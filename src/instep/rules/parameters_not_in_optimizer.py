"""INS502 parameters-not-in-optimizer

The loss comes from several models, one of which no optimizer holds. Its gradients are computed at
every backward, cost time and memory, and are never used: the model stays as it was initialised,
while everything around it learns to live with a random layer. They are not cleared by
`optimizer.zero_grad()` either, so they grow.

**Fix.** Hand the parameters of all trained models to the optimizer; if one is meant to be fixed,
call `requires_grad_(False)` on it. The former is
`torch.optim.Adam([*encoder.parameters(), *decoder.parameters()])`, or
`optimizer.add_param_group({"params": head.parameters()})`.

**When it is fine.** If the model is meant to stay as it is, say so: `model.requires_grad_(False)`
saves the work of its gradients, and `model.eval()` turns dropout off. Either silences this rule.
Nor is anything said where gradients are handed on by hand, as workers of A3C do with those of
their own networks.

**In a running job** an optimizer may still come, as in training by stages: until the end it is a
note at most, which is taken back if one does. A note is all it is, too, for a network that is in
eval mode as a whole, and for one whose gradients somebody clears at every update: the updates are
right, and only the work is wasted. Where every optimizer steps without any gradient, it holds
another model than the one that is trained, as after `model = copy.deepcopy(model)`: make the
optimizer afterwards.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from instep.rules.accumulation import quoted
from instep.rules.finding import Severity
from instep.rules.reading import distinct, is_part, measured, names
from instep.rules.view import report, spelled
from instep.trace import Assumed, Backward, Created, GradEdited, Mode, Opaque, Rebound, Step
from instep.trace.pattern import pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from instep.rules.finding import Finding
    from instep.rules.view import View
    from instep.trace import Measured, Place

CODE = "INS502"
NAME = "parameters-not-in-optimizer"
SUMMARY = "A model that the loss comes from is held by no optimizer, so it is never trained."
SEVERITY = Severity.WARNING
MILDEST = Severity.INFO

BAD = """\
import torch

encoder = torch.nn.Linear(784, 32)
decoder = torch.nn.Linear(32, 784)
optimizer = torch.optim.Adam(decoder.parameters(), lr=1e-3)
for x in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(decoder(encoder(x)), x)
    loss.backward()  # <- here
    optimizer.step()
"""

GOOD = """\
import torch

encoder = torch.nn.Linear(784, 32)
decoder = torch.nn.Linear(32, 784)
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3)
for x in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(decoder(encoder(x)), x)
    loss.backward()
    optimizer.step()
"""

# Networks that measure or guide, and are not trained although nobody froze them.
_GUIDE = pattern(
    r"vgg|lpips|percept|inception|teacher|target|reward|(?<![a-z])(?:ema|clip|ref)(?![a-z])",
    re.IGNORECASE,
)
_TOLD = pattern(r"([\d,]+ parameters?) of `([^`]+)`")
_MOST_NAMES = 3
_NUMBER = pattern(r"#\d+")  # of several models with one name


def judge(view: View) -> Iterator[Finding]:
    """Find models beside trained ones that no optimizer holds."""
    held = None if view.trace.of(Opaque) else _held(view)
    if held is None:
        return
    reports = (*_judge(view, held), *_growing(view, held))
    found = [finding for finding in reports if finding is not None]
    # Of several at one place, the worst is told.
    found.sort(key=lambda finding: finding.severity, reverse=True)
    yield from distinct(found)


def _is_handed_over(view: View, models: Iterable[str], held: frozenset[str]) -> bool:
    """Say whether the gradients of models may be put into those of an optimizer by hand.

    Workers of A3C do that: each has a network of its own, and the optimizer has the shared one.
    """
    edited = {o for e in view.trace.of(GradEdited) if e.factor is None for o in e.optimizers or ()}
    if edited - view.read(_reached):
        return True  # they come from somewhere
    return bool(edited) and any(_is_twin(view, one, other) for one in models for other in held)


def _reached(view: View) -> set[str]:
    """Return the optimizers that a backward reaches."""
    return {o for e in view.trace.of(Backward) for o in e.optimizers or ()}


def _growing(view: View, held: frozenset[str]) -> Iterator[Finding | None]:
    """Find parts of trained models whose gradients a running job has seen going nowhere."""
    if any(event.parameters for event in view.trace.of(Rebound)):
        return  # they came in place of others: that is what INS503 tells
    found: dict[tuple[Place | None, Severity], list[Measured]] = {}
    for gauge in measured(view, "foreign-gradients"):
        told = _TOLD.fullmatch(gauge.subject or "")
        if told is not None and any(is_part(told[2], model) for model in held):
            if _is_handed_over(view, (), held):
                continue
            severity = _severity(view, gauge, is_part_of_trained=True)
            if severity is not None:
                found.setdefault((gauge.place, severity), []).append(gauge)
    for (_, severity), gauges in found.items():
        message = _says(view, gauges, severity)
        yield report(sys.modules[__name__], gauges[0], message, severity=severity)


def _severity(
    view: View, gauge: Measured | None, *, is_part_of_trained: bool = False
) -> Severity | None:
    """Say how bad it is, by what a running job has measured; None: it is too early to say."""
    if _is_running(view):
        # An optimizer may come, above all for what somebody clears already.
        grows = gauge is not None and _has(view, "foreign-backwards", gauge)
        return Severity.INFO if grows else None
    if gauge is None or view.facts.get("job", {}).get("source") != "watch":
        return SEVERITY
    # Whoever clears a model that no optimizer has knows of its gradients. What is part of a model
    # is cleared with the rest of it, and may be forgotten all the same.
    is_cleared = not (is_part_of_trained or _has(view, "foreign-backwards", gauge))
    # Where its optimizer has another one like it, clearing it is all that is done right.
    is_cleared = is_cleared and not any(measured(view, "twin-gradients"))
    is_fixed = _has(view, "foreign-evaluated", gauge)
    return Severity.INFO if is_cleared or is_fixed else SEVERITY


def _is_running(view: View) -> bool:
    return bool(view.facts.get("job", {}).get("running"))


def _has(view: View, quantity: str, gauge: Measured) -> bool:
    """Say whether something else was measured on the same parameters."""
    return any(other.subject == gauge.subject for other in measured(view, quantity))


def _says(view: View, gauges: list[Measured], severity: Severity) -> str:
    """Say what several parts have lost together: they share a place, so they are told as one."""
    what, count = _parts(gauges)
    verb = "is" if count == 1 else "are"
    mode = " (in eval mode)" if all(_has(view, "foreign-evaluated", g) for g in gauges) else ""
    grow = "grow" if any(_has(view, "foreign-backwards", g) for g in gauges) else "are computed"
    used = "not used so far" if _is_running(view) else "never used"
    fixed = (
        "; if they are meant to be fixed, `requires_grad_(False)` saves that"
        if severity is Severity.INFO
        else ""
    )
    size = _size(sum(gauge.value for gauge in gauges))
    return f"{what}{mode} {verb} in no optimizer: {size} of gradients {grow} and are {used}{fixed}."


def _parts(gauges: list[Measured]) -> tuple[str, int | None]:
    """Return what is left out, and how many parameters that are, where it says so."""
    told = [_TOLD.fullmatch(gauge.subject or "") for gauge in gauges]
    counted = [each for each in told if each is not None]
    if len(counted) < len(gauges):
        return " and ".join(gauge.subject or "" for gauge in gauges), None
    count = sum(int(each[1].split()[0].replace(",", "")) for each in counted)
    names = list(dict.fromkeys(f"`{_NUMBER.sub('', each[2])}`" for each in counted))
    rest = len(names) - _MOST_NAMES
    if rest > 0:
        names = [*names[:_MOST_NAMES], f"{rest} more"]
    listed = " and ".join([*([", ".join(names[:-1])] if names[1:] else []), names[-1]])
    return f"{count:,} parameter{'' if count == 1 else 's'} of {listed}", count


def _holders(view: View, model: str) -> str:
    """Say which optimizer was meant for a model and has another one like it, where that shows."""
    twins = (gauge for gauge in measured(view, "twin-gradients") if gauge.subject == model)
    name = quoted(optimizer for gauge in twins for optimizer in gauge.optimizers or ())
    if not name:
        return ""
    return (
        f" {name} holds as many of the same shapes that no loss reaches: those of a model that "
        "this one is a copy of, or was made in place of."
    )


def _size(count: float) -> str:
    """Return a number of bytes as people say it.

    >>> _size(4_100_000), _size(900)
    ('4.1 MB', '900 bytes')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} bytes"


def _judge(view: View, held: frozenset[str]) -> Iterator[Finding | None]:
    stepped = {event.optimizer for event in view.trace.of(Step)}
    idle = _is_idle(view, stepped)
    evaluated: set[str | None] = set()
    told: dict[str, Place | None] = {}  # where: of several losses, the first one is enough
    for event in view.events:
        if isinstance(event, Mode):
            (evaluated.discard if event.training else evaluated.add)(event.model)
        elif isinstance(event, Backward) and event.models is not None:
            is_idle = idle and event.optimizers == ()
            if not is_idle and stepped.isdisjoint(event.optimizers or ()):
                continue
            models = event.models
            left = [m for m in models if m not in evaluated and _is_left_out(view, m, held)]
            left = [m for m in left if told.get(m, event.place) == event.place]
            if not left or _is_handed_over(view, left, held):
                continue
            # Among trained models, one that is not was forgotten; alone, it may be attacked,
            # inverted or searched through.
            among = any(_is_held(model, held) for model in models)
            is_told = among
            if is_idle:
                is_told = not among and (
                    any(_is_twin(view, left[0], other) for other in held)
                    or any(gauge.subject in left for gauge in measured(view, "twin-gradients"))
                )
            found = _report(view, event, left) if is_told else None
            if found is not None:
                told.update(dict.fromkeys(left, event.place))
                yield found


def _is_idle(view: View, stepped: set[str | None]) -> bool:
    """Say whether everything that steps does so without any loss: it was made for this one."""
    unclear = any(event.optimizers is None for event in view.trace.of(Backward))
    return bool(stepped) and not unclear and stepped.isdisjoint(view.read(_reached))


def _is_twin(view: View, one: str, other: str) -> bool:
    """Say whether two models are of one kind: the one that is held was meant to be the other."""
    kind = view.facts.get(one, {}).get("type")
    return kind is not None and kind == view.facts.get(other, {}).get("type")


def _held(view: View) -> frozenset[str] | None:
    """Return the models that optimizers hold at any time; None if one is not known."""
    held: set[str] = set()
    for event in view.trace.of(Created):
        if event.role == "optimizer":
            models = names(event.facts.get("models"))
            if models is None or _is_chosen(view, event):
                return None
            held.update(models)
    known = {id_ for id_, facts in view.facts.items() if facts["role"] == "optimizer"}
    return frozenset(held) if known.issuperset(view.windows) else None


def _is_chosen(view: View, optimizer: Created) -> bool:
    """Say whether what an optimizer holds may hang on a choice: of the tasks that a class can be
    made for, say, each with models of its own.
    """
    made = optimizer.place
    return made is not None and any(
        event.place is not None
        and event.place.function == made.function
        and event.place.line < made.line
        for event in view.trace.of(Assumed)
    )


def _is_held(model: str, held: frozenset[str]) -> bool:
    return any(is_part(model, one) or is_part(one, model) for one in held)


def _is_left_out(view: View, model: str, held: frozenset[str]) -> bool:
    facts = view.facts.get(model, {})
    if not facts.get("trainable") or facts.get("held") or facts.get("frozen"):
        return False
    if facts.get("type") is None or facts.get("distributed") or facts.get("loaded"):
        return False
    if _GUIDE.search(model) or _GUIDE.search(str(facts["type"])) or _is_held(model, held):
        return False
    # Under another name it may be part of what is held.
    return not any(model in {event.was, event.now} for event in view.trace.of(Rebound))


def _report(view: View, backward: Backward, left: list[str]) -> Finding | None:
    made = [
        event
        for event in view.events
        if isinstance(event, Created) and (event.role == "optimizer" or event.id in left)
    ]
    told = [(model, *each) for model in left for each in _judged(view, backward, model)]
    if not told:
        return None
    severity = max(each[1] for each in told)
    worst = [each for each in told if each[1] is severity]
    # A part is one, also where the model around it is left out as well.
    gauges = list({gauge.subject: gauge for _, _, gauge in worst if gauge is not None}.values())
    if gauges:
        message = _says(view, gauges, severity)
        message += next(filter(None, (_holders(view, model) for model, *_ in worst)), "")
    else:
        message = (
            f"`{spelled(worst[0][0])}` is held by no optimizer, so it is never trained although "
            "the loss comes from it."
        )
    return report(
        sys.modules[__name__],
        backward,
        message,
        severity=severity,
        related=[
            (event, "not held by an optimizer" if event.id in left else "optimizer made here")
            for event in made
        ],
        evidence=made,
    )


def _judged(
    view: View, backward: Backward, model: str
) -> Iterator[tuple[Severity, Measured | None]]:
    """Say how bad it is that a model is left out, and what was measured, if it is not too early."""
    for gauge in measured(view, "foreign-gradients"):
        told = _TOLD.fullmatch(gauge.subject or "")
        if gauge.place == backward.place and told is not None and is_part(told[2], model):
            severity = _severity(view, gauge)
            if severity is not None:
                yield severity, gauge
            return
    severity = _severity(view, None)
    if severity is not None:
        yield severity, None
