"""`verify`: does splitting a batch change its gradient? Answered by trying, in float64."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from instep.engine import causes
from instep.engine.forms import Form
from instep.engine.function import count_in, plan_of, read_result
from instep.engine.lend import double, float64, places_of
from instep.engine.means import leave_alone
from instep.engine.reference import relative_error, relative_errors
from instep.errors import InstepError, LossError, SetupError, SplitError, WindowError
from instep.splits.tree import rebuild, tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from torch import Tensor, nn

    from instep.engine.causes import Cause
    from instep.engine.forms import Encode
    from instep.engine.function import Split
    from instep.engine.stepper import Stepper

_TYPES = re.compile(r"dtype|scalar type|type.* should be the same|not implemented for 'Double'")
"""How operations say that their tensors are of different types, or of one they do not take."""


@dataclass(frozen=True, slots=True)
class Verification:
    """What `verify` found: the relative gradient error of each parameter, split against whole."""

    errors: Mapping[str, float]
    loss_whole: float
    loss_split: float
    pieces: int
    notes: tuple[str, ...]
    tolerance: float = 1e-9
    cause: Cause | None = None
    """Why the gradients differ, if they do: `cause.name`, `cause.why`, `cause.fix`."""

    @property
    def worst(self) -> float:
        """The largest error of any parameter; NaN if one is NaN."""
        errors = list(self.errors.values())
        return math.nan if any(map(math.isnan, errors)) else max(errors, default=0.0)

    @property
    def ok(self) -> bool:
        """Whether the split makes no difference beyond rounding."""
        return self.worst <= self.tolerance

    def require(self) -> Self:
        """Raise SplitError if the split makes a difference, with the cause and what to do."""
        if not self.ok:
            cause = self.cause or causes.UNKNOWN
            raise SplitError(
                f"the gradient in {self.pieces} pieces is not that of the whole batch: it is off "
                f"by {self.worst:.1e}, relative.",
                why=cause.why,
                fix=cause.fix,
                more=cause.more,
            )
        return self

    def __str__(self) -> str:
        verdict = "the same gradient" if self.ok else "NOT the same gradient"
        lines = [f"whole and in {self.pieces} pieces: {verdict} (worst {self.worst:.1e})"]
        width = max((len(name) for name in self.errors), default=0)
        for name, error in sorted(self.errors.items(), key=lambda pair: -pair[1]):
            lines.append(f"  {name:<{width}}  {error:.1e}")
        lines.append(f"  loss: {self.loss_whole:.9g} whole, {self.loss_split:.9g} split")
        lines.extend(f"  note: {note}" for note in self.notes)
        return "\n".join(lines)


def verify(
    stepper: Stepper,
    batch: Any,
    loss_fn: Callable[..., Any],
    *,
    split: Split = None,
    encode: Encode | None = None,
    combine: Literal["join", "sum"] = "join",
    batchnorm: Literal["piece", "window", "exact"] | None = None,
    tolerance: float = 1e-9,
) -> Verification:
    """Replay one window whole and split, in float64, and compare the gradients.

    `loss_fn`, `encode`, `combine` and `batchnorm` are those for `stepper.step`. Nothing is updated:
    parameters, buffers, gradients, random state and training mode are as before. Dropout is off for
    the comparison.
    """
    form = Form.of(loss_fn, encode=encode, combine=combine, batchnorm=batchnorm)
    return _verified(stepper, batch, form, split, tolerance)


def require_once(
    stepper: Stepper, batch: Any, form: Form, split: Any, tried: set[Hashable]
) -> None:
    """Verify the first batch of each shape, and raise if its split makes a difference."""
    shapes = tuple((tuple(each.shape), each.dtype) for each in tensors(batch))
    functions = tuple(map(_written, [form.loss_fn, *(form.encoders or {}).values()]))
    key = (shapes, repr(split), functions, form.is_summed, form.batchnorm)
    if key not in tried:
        if len(plan_of(batch, split, stepper.models)) > 1:
            _verified(stepper, batch, form, split, 1e-9).require()
        tried.add(key)


def _written(function: object) -> Hashable:
    """Return what a function is, however often it was made anew, as lambdas in a loop are."""
    code: Hashable = getattr(function, "__code__", None)
    return code or type(function).__qualname__


def _verified(
    stepper: Stepper, batch: Any, form: Form, split: Any, tolerance: float
) -> Verification:
    if not hasattr(stepper, "is_in_window"):
        raise SetupError(
            f"verify() was given a {type(stepper).__name__}, not an instep.Stepper.",
            why="it replays a window of a stepper, which has the model and its optimizer.",
            fix="call instep.verify(instep.Stepper(model, optimizer), batch, loss_fn, split=8).",
            more="verify",
        )
    if stepper.is_in_window:
        raise WindowError(
            "verify() inside a window.",
            why="it needs the parameters for a window of its own.",
            fix="call it before the loop.",
            more="verify",
        )
    if not stepper.ranks.is_alone:
        raise WindowError(
            "verify() on several ranks.",
            why="it replays a window of one process; the others would wait for theirs.",
            fix="verify the split once, in one process with a plain model.",
            more="ranks",
        )
    split, uncut = (split, []) if split is not None else _halves(batch)
    with float64(stepper) as named:
        trial = _Trial(stepper, named, form, rebuild(batch, double), split)
        try:
            whole, loss_whole = trial.whole()
            again, _ = trial.whole()
            pieces, loss_split = trial.split()
            errors = relative_errors(
                dict(zip(named, pieces, strict=True)), dict(zip(named, whole, strict=True))
            )
            cause = None
            if relative_error(again, whole) > tolerance:
                cause = causes.RANDOM
            elif not all(error <= tolerance for error in errors.values()):
                cause = trial.cause(tolerance)
        except RuntimeError as error:
            if isinstance(error, InstepError) or not _TYPES.search(str(error)):
                raise
            raise LossError(
                "the loss function does not run in float64.",
                why=f"{error}: something in it fixes another type, and verify compares in float64.",
                fix="let types follow the model: weight=weight.to(logits.dtype) for weights of "
                "classes and the like, and x.to(layer.weight.dtype) instead of x.float().",
                more="verify",
            ) from error
    notes = uncut + _notes(stepper.models, form)
    if cause is not None:
        notes.append(cause.why)
    count = len(plan_of(batch, split, stepper.models))
    return Verification(errors, loss_whole, loss_split, count, tuple(notes), tolerance, cause)


def _halves(batch: Any) -> tuple[int | None, list[str]]:
    """Return a split for a batch, and a note if it cannot be told how to cut it."""
    samples, refused = count_in(batch, None)
    if refused is not None:
        return None, [f"nothing was cut: {refused.what} To compare pieces, {refused.fix}"]
    # Two uneven pieces: equal ones would hide a mean of means.
    samples = samples or 1
    return max(1, min(math.ceil(samples * 0.6), samples - 1)), []


@dataclass(frozen=True, slots=True)
class _Trial:
    """One batch, to be run whole and split as often as needed."""

    stepper: Stepper
    named: Mapping[str, Tensor]
    form: Form
    batch: Any
    size: Any

    def whole(self) -> tuple[list[Tensor | None], float]:
        """Return the gradients and the loss of the batch as one piece."""
        result, items = read_result(
            self.form.whole(self.batch),
            *(count_in(self.batch, self.size) if self.form.encoders is None else (1, None)),
        )
        terms = result if isinstance(result, dict) else {"loss": result}
        counts = items if isinstance(items, dict) else {"loss": items}
        losses = [loss.reshape(()) for name, loss in terms.items() if float(counts[name]) > 0]
        total = torch.stack(losses).sum() if losses else torch.zeros(())
        if not total.requires_grad:
            raise LossError(
                "the loss has no graph behind it.",
                why="no parameter that requires a gradient took part in it.",
                fix="compute it from the stepper's model with gradients on.",
                more="loss",
            )
        found = torch.autograd.grad(total, list(self.named.values()), allow_unused=True)
        return list(found), float(total.detach())

    def split(self) -> tuple[list[Tensor | None], float]:
        """Run a real window over the pieces; a rate of 0 leaves the parameters as they are."""
        form = self.form
        parameters = list(self.named.values())
        still = torch.optim.SGD(parameters, lr=0.0)
        leave_alone(still)
        probe = type(self.stepper)(self.stepper.models, still, keep_grads=True)
        update = probe.step(
            self.batch,
            form.loss_fn,
            split=self.size,
            encode=form.encoders,
            combine="sum" if form.is_summed else "join",
            batchnorm=form.batchnorm,
        )
        found = [parameter.grad for parameter in parameters]
        for parameter in parameters:
            parameter.grad = None
        return found, update.loss

    def cause(self, tolerance: float) -> Cause:
        """Find out why the two differ, one suspect at a time."""
        models = self.stepper.models
        with causes.batchnorm_in_eval(models) as has_any:
            if has_any and self.form.batchnorm != "exact":
                whole, _ = self.whole()
                pieces, _ = self.split()
                if relative_error(pieces, whole) <= tolerance:
                    is_window = self.form.batchnorm == "window"
                    return causes.ESTIMATED if is_window else causes.BY_PIECE
            if self.form.encoders is not None:
                return causes.ENCODE
            parameters = list(self.named.values())
            return causes.cause_in_loss(self.form, self.batch, self.size, models, parameters)


def _notes(models: list[nn.Module], form: Form) -> list[str]:
    if form.batchnorm == "exact":
        return []
    those = (
        "those of a piece"
        if form.batchnorm == "piece"
        else "the whole batch's, their gradient estimated"
    )
    return [
        f"{place}{name or type(module).__name__} is a {type(module).__name__} in training mode: "
        f"its statistics are {those}, so no split of it is exact."
        for place, model in places_of(models)
        for name, module in model.named_modules()
        if isinstance(module, _BatchNorm) and module.training
    ]
