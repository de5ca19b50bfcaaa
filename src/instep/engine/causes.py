"""Why splitting a batch changes its gradient: found by trying, and named with what to do."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from instep.engine.checks import count_of
from instep.engine.function import plan_of, read_result, samples_in
from instep.splits.micro import Micro

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor, nn

    from instep.engine.forms import Form
    from instep.splits.plan import Plan

CauseName = Literal["coupled", "items", "sum", "batchnorm", "encode", "random", "unknown"]
MOST_PIECES = 8


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason for a difference, and what to do about it."""

    name: CauseName
    why: str
    fix: str
    more: str


RANDOM = Cause(
    "random",
    "the loss is random: two runs on the whole batch differ as well.",
    "use nn.Dropout, which is switched off to compare, or leave the randomness out for this try.",
    "verify",
)
COUPLED = Cause(
    "coupled",
    "the loss couples the samples: that of the whole batch is no mean of its pieces' losses, "
    "however they are weighed.",
    "split it in two passes: encode=model, and loss_fn(representations, batch) on all of them.",
    "two-pass",
)
SUM = Cause(
    "sum",
    "the loss is a sum over samples (or divided by a constant): that of the whole batch is the sum "
    "of its pieces' losses, not their mean.",
    "return the mean, or (loss / items, items).",
    "items",
)
ENCODE = Cause(
    "encode",
    "encode couples the samples: what it returns for the whole batch is not what it returns for "
    "the pieces, put together.",
    "move what looks at all samples (a mean over the batch, a similarity) into loss_fn.",
    "two-pass",
)
ESTIMATED = Cause(
    "batchnorm",
    "BatchNorm uses the statistics of the whole batch, but how the loss depends on them is "
    "estimated from each piece: the forward is the whole batch's, the gradient is near it.",
    'pass batchnorm="exact", or put the layers into eval mode.',
    "batchnorm",
)
BY_PIECE = Cause(
    "batchnorm",
    "BatchNorm in training mode normalises by the statistics of a piece; with these layers in eval "
    "mode the split changes nothing.",
    'pass batchnorm="exact" (or "window": the same forward, a gradient near it), put the '
    "layers into eval mode, or use GroupNorm.",
    "batchnorm",
)
UNKNOWN = Cause(
    "unknown",
    "the loss couples the samples, or items is no count of what it averages; this batch does not "
    "tell them apart.",
    "try a batch with more samples; or split in two passes with encode=.",
    "verify",
)


@contextlib.contextmanager
def batchnorm_in_eval(models: Sequence[nn.Module]) -> Iterator[bool]:
    """Put BatchNorm layers into eval mode for a while; yield whether there are any in training."""
    layers = [
        module
        for model in models
        for module in model.modules()
        if isinstance(module, _BatchNorm) and module.training and module.running_mean is not None
    ]
    for layer in layers:
        layer.training = False
    try:
        yield bool(layers)
    finally:
        for layer in layers:
            layer.training = True


def cause_in_loss(
    form: Form,
    batch: Any,
    split: Any,
    models: Sequence[nn.Module],
    parameters: Sequence[Tensor],
) -> Cause:
    """Tell a loss that couples its samples from one that is a mean with other weights.

    A mean over items of any kind makes the whole's gradient a weighted mean of the pieces', and
    the weights say what the loss counts. Two uneven pieces first: few unknowns, many equations.
    """
    samples = samples_in(batch, split) or 0
    tries: list[tuple[str, Plan]] = []
    if samples > 1:
        size = max(1, min(math.ceil(samples * 0.6), samples - 1))
        dim = split.dim if isinstance(split, Micro) else 0
        named = f"was cut for this try into pieces of {size} and {samples - size} samples"
        tries.append((named, Micro(size, dim=dim).plan(batch)))
    given = plan_of(batch, split, models)
    if 1 < len(given) <= MOST_PIECES:
        tries.append((f"is cut into {len(given)} pieces by the split", given))
    whole = _gradients(form.loss_fn(batch), samples, parameters)
    for named, plan in tries:
        plan.try_on(form.loss_fn)
        parts = []
        for piece in plan:
            with piece.around():
                result = form.loss_fn(piece.value)
            parts.append(_gradients(result, piece.items, parameters))
        for term, (target, _) in whole.items():
            found = [part[term] for part in parts if term in part]
            cause = _judge(term if len(whole) > 1 else None, target, found, named)
            if cause is not None:
                return cause
    return UNKNOWN


_Pull = tuple[list["Tensor"], float]
"""A gradient with the loss as its last entry, and the items declared."""


def _gradients(result: Any, samples: int | None, parameters: Sequence[Tensor]) -> dict[str, _Pull]:
    loss, items = read_result(result, samples)
    losses = loss if isinstance(loss, Mapping) else {"loss": loss}
    counts = items if isinstance(items, Mapping) else {"loss": items}
    found: dict[str, _Pull] = {}
    for name, term in losses.items():
        count = float(count_of(counts[name]))
        if not count or not term.requires_grad:
            continue
        gradients = torch.autograd.grad(term, parameters, retain_graph=True, allow_unused=True)
        dense = [
            torch.zeros_like(p) if g is None else g.to_dense() if g.is_sparse else g
            for g, p in zip(gradients, parameters, strict=True)
        ]
        found[name] = [*dense, term.detach().reshape(1)], count
    return found


def _judge(
    term: str | None, target: Sequence[Tensor], parts: Sequence[_Pull], named: str
) -> Cause | None:
    """Return what is wrong with one term; None if its items are right, or nothing can be said.

    named: how the parts were cut, for the message.
    """
    equations = sum(each.numel() for each in target)
    everything = [*target, *(each for part, _ in parts for each in part)]
    if len(parts) < 2 or equations < len(parts) + 2 or not all(map(_is_finite, everything)):
        return None
    weights = _weights(target, [part for part, _ in parts])
    declared = [items / sum(items for _, items in parts) for _, items in parts]
    if weights is None:
        return COUPLED
    if _near(weights, declared):
        return None
    if _near(weights, [1.0] * len(parts)):
        return SUM
    is_mean = abs(sum(weights) - 1) < 1e-5 and min(weights) > -1e-5
    return _miscounted(term, weights, declared, named) if is_mean else COUPLED


def _weights(target: Sequence[Tensor], parts: Sequence[Sequence[Tensor]]) -> list[float] | None:
    """Return how much of each part adds up to the target; None if no amounts do."""
    products = torch.tensor(
        [[_dot(one, other) for other in parts] for one in parts], dtype=torch.float64
    )
    sides = torch.tensor([_dot(one, target) for one in parts], dtype=torch.float64)
    weights: list[float] = (torch.linalg.pinv(products, hermitian=True) @ sides).tolist()
    rest = 0.0
    for index, each in enumerate(target):
        left = each.clone()
        for weight, part in zip(weights, parts, strict=True):
            left -= weight * part[index]
        rest += _dot([left], [left])
    return weights if rest <= 1e-12 * _dot(target, target) else None


def _is_finite(tensor: Tensor) -> bool:
    return bool(torch.isfinite(tensor).all())


def _miscounted(
    term: str | None, weights: Sequence[float], declared: Sequence[float], named: str
) -> Cause:
    what = f"term {term!r}" if term else "the loss"
    return Cause(
        "items",
        f"items is no count of what {what} averages: the batch {named}, "
        f"these weigh {_shares(weights)} in its loss, and {_shares(declared)} by their items.",
        "return (loss, items) with what the mean divides by: items=(targets != -100).sum(), "
        "mask.sum(), or a sum of weights.",
        "items",
    )


def _shares(weights: Sequence[float]) -> str:
    return " : ".join(f"{weight:.3g}" for weight in weights)


def _near(one: Sequence[float], other: Sequence[float]) -> bool:
    return all(abs(a - b) < 1e-5 for a, b in zip(one, other, strict=True))


def _dot(one: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    return sum(
        float(torch.vdot(a.reshape(-1), b.reshape(-1)).real)
        for a, b in zip(one, other, strict=True)
    )
