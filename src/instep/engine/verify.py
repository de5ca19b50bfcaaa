"""`verify`: does splitting a batch change its gradient? Answered by trying, in float64."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.parameter import is_lazy

from instep.engine import gradients as grads
from instep.engine import rng
from instep.engine.function import plan_of, read_result
from instep.engine.reference import relative_error, relative_errors
from instep.engine.stepper import Stepper
from instep.errors import LossError, WindowError
from instep.splits.micro import Micro
from instep.splits.tree import rebuild

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import Tensor, nn

    from instep.engine.function import Split


@dataclass(frozen=True, slots=True)
class Verification:
    """What `verify` found: the relative gradient error of each parameter, split against whole."""

    errors: Mapping[str, float]
    loss_whole: float
    loss_split: float
    pieces: int
    notes: tuple[str, ...]
    tolerance: float = 1e-9

    @property
    def worst(self) -> float:
        """The largest error of any parameter; NaN if one is NaN."""
        errors = list(self.errors.values())
        return math.nan if any(map(math.isnan, errors)) else max(errors, default=0.0)

    @property
    def ok(self) -> bool:
        """Whether the split makes no difference beyond rounding."""
        return self.worst <= self.tolerance

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
    loss_fn: Callable[[Any], Any],
    *,
    split: Split = None,
    tolerance: float = 1e-9,
) -> Verification:
    """Replay one window whole and split, in float64, and compare the gradients.

    `loss_fn` is the one for `stepper.step`. Nothing is updated: parameters, buffers, gradients,
    random state and training mode are as before. Dropout is off for the comparison.
    """
    if stepper.is_in_window:
        raise WindowError(
            "verify() inside a window.",
            why="it needs the parameters for a window of its own.",
            fix="call it before the loop.",
            more="verify",
        )
    samples = Micro.samples(batch)
    if split is None:
        # Two uneven pieces: equal ones would hide a mean of means.
        split = max(1, min(math.ceil((samples or 1) * 0.6), (samples or 1) - 1))
    with _float64(stepper) as named:
        notes = _notes(stepper.models)
        parameters = list(named.values())
        wide = rebuild(batch, _double)
        try:
            whole, loss_whole = _whole(parameters, loss_fn, wide)
            again, _ = _whole(parameters, loss_fn, wide)
            loss_split, pieces = _split(stepper, parameters, loss_fn, wide, split)
        except RuntimeError as error:
            if "dtype" not in str(error):
                raise
            raise LossError(
                "the loss function does not run in float64.",
                why=f"{error}: something in it fixes another type, and verify compares in float64.",
                fix="let types follow the input: x.to(weight.dtype) instead of x.float().",
                more="verify",
            ) from error
        if relative_error(again, whole) > tolerance:
            notes.append("the loss is random: two runs on the whole batch differ as well.")
        expected = dict(zip(named, whole, strict=True))
        errors = relative_errors(dict(zip(named, pieces, strict=True)), expected)
    count = len(plan_of(batch, split, stepper.models))
    return Verification(errors, loss_whole, loss_split, count, tuple(notes), tolerance)


def _whole(
    parameters: list[Tensor], loss_fn: Callable[[Any], Any], batch: Any
) -> tuple[list[Tensor | None], float]:
    result, items = read_result(loss_fn(batch), Micro.samples(batch))
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
    found = torch.autograd.grad(total, parameters, allow_unused=True)
    return list(found), float(total.detach())


def _split(
    stepper: Stepper,
    parameters: list[Tensor],
    loss_fn: Callable[[Any], Any],
    batch: Any,
    split: Split,
) -> tuple[float, list[Tensor | None]]:
    """Run a real window over the pieces; a rate of 0 leaves the parameters as they are."""
    still = torch.optim.SGD(parameters, lr=0.0)
    probe = Stepper(stepper.models, still, keep_grads=True)
    update = probe.step(batch, loss_fn, split=split)
    return update.loss, [parameter.grad for parameter in parameters]


def _double(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if value.is_complex():
        return value.to(torch.complex128)
    return value.double() if value.is_floating_point() else value


def _notes(models: list[nn.Module]) -> list[str]:
    notes = []
    for model in models:
        for name, module in model.named_modules():
            if isinstance(module, _BatchNorm) and module.training:
                notes.append(
                    f"{name or type(module).__name__} is a {type(module).__name__} in training "
                    "mode: its statistics are those of a piece, so no split of it is exact."
                )
    return notes


@contextlib.contextmanager
def _float64(stepper: Stepper) -> Iterator[dict[str, Tensor]]:
    """Lend the parameters and buffers in float64, dropout off; put everything back after."""
    random = rng.full_state()
    owned = {id(p): p for os in stepper.optimizers.values() for p in grads.parameters_of(os)}
    modules = [module for model in stepper.models for module in model.modules()]
    if any(is_lazy(p) for p in owned.values()):
        raise LossError(
            "the model has parameters without a shape.",
            why="lazy modules get theirs at their first forward, which must not be a probe.",
            fix="run one forward first.",
            more="verify",
        )
    several = len(stepper.models) > 1
    names = {
        id(p): f"models[{index}].{name}" if several else name
        for index, model in enumerate(stepper.models)
        for name, p in model.named_parameters()
    }
    named = {
        names.get(key, f"parameter {index}"): parameter
        for index, (key, parameter) in enumerate(owned.items())
        if parameter.requires_grad
    }
    places = [(m, n, b) for m in modules for n, b in m.named_buffers(recurse=False)]
    buffers = [buffer for _, _, buffer in places]
    held = [p for model in stepper.models for p in model.parameters()] + list(owned.values())
    tensors = list({id(t): t for t in [*held, *buffers]}.values())
    saved = [(t, t.data, t.grad) for t in tensors]
    dropouts = [m for m in modules if isinstance(m, _DropoutNd) and m.training]
    try:
        for tensor in tensors:
            tensor.grad = None
            tensor.data = _double(tensor.data).clone()
            _follow_dtype(tensor)
        for module in dropouts:
            module.training = False
        yield named
    finally:
        for tensor, data, gradient in saved:
            tensor.grad = None
            tensor.data = data
            _follow_dtype(tensor)
            tensor.grad = gradient
        for owner, name, buffer in places:
            if getattr(owner, name) is not buffer:
                setattr(owner, name, buffer)
        for module in dropouts:
            module.training = True
        rng.restore(random)


def _follow_dtype(tensor: Tensor) -> None:
    # A gradient type that was demanded for the old type would round or refuse gradients of the new.
    if tensor.requires_grad and tensor.is_leaf and tensor.grad_dtype != tensor.dtype:
        tensor.grad_dtype = None
