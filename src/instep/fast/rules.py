"""The update rules that the kernel knows, as a table: state names, and one row per parameter.

A rule turns a parameter group into the numbers of a row; the kernel does the rest. What is not in
the table (other classes, amsgrad, differentiable, rates in tensors on a device) takes the portable
close.
"""

from __future__ import annotations

import inspect
import math
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.optim import Optimizer

COLUMNS = 10
"""Numbers per row: sign, and nine whose meaning belongs to the rule.

1 - beta is sent beside beta: in float32 their difference would have lost five digits.
"""

Row = tuple[float, ...]
Group = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rule:
    """One optimizer's update, as the kernel's `KIND` computes it."""

    kind: int
    states: tuple[str, ...]
    """Names of the moments in `optimizer.state`, in the kernel's order."""
    has_step: bool
    row: Callable[[Group, float], Row]
    """The numbers of a parameter at its step number (1 for its first update)."""


def _adam(group: Group, step: float) -> Row:
    beta1, beta2 = (float(beta) for beta in group["betas"])
    rate, decay = float(group["lr"]), float(group["weight_decay"])
    return (
        -1.0 if group["maximize"] else 1.0,
        rate / (1.0 - beta1**step),
        math.sqrt(1.0 - beta2**step),
        beta1,
        beta2,
        float(group["eps"]),
        0.0 if _is_decoupled(group) else decay,
        1.0 - rate * decay if _is_decoupled(group) else 1.0,
        1.0 - beta1,
        1.0 - beta2,
    )


def _is_decoupled(group: Group) -> bool:
    return bool(group.get("decoupled_weight_decay", False))


def _sgd(group: Group, step: float) -> Row:
    momentum = float(group["momentum"])
    is_first = step <= 1
    return (
        -1.0 if group["maximize"] else 1.0,
        float(group["lr"]),
        momentum if not is_first else 0.0,
        1.0 - float(group["dampening"]) if not is_first else 1.0,
        momentum if group["nesterov"] else 0.0,
        0.0 if group["nesterov"] else 1.0,
        float(group["weight_decay"]),
        1.0,
        0.0,
        0.0,
    )


def _lion(group: Group, step: float) -> Row:  # noqa: ARG001 -- it corrects no bias
    beta1, beta2 = (float(beta) for beta in group["betas"])
    rate = float(group["lr"])
    decay = 1.0 - rate * float(group.get("weight_decay", 0.0))
    sign = -1.0 if group.get("maximize", False) else 1.0
    return (sign, rate, 0.0, beta1, beta2, 0.0, 0.0, decay, 1.0 - beta1, 1.0 - beta2)


ADAM = Rule(0, ("exp_avg", "exp_avg_sq"), has_step=True, row=_adam)
SGD = Rule(1, ("momentum_buffer",), has_step=False, row=_sgd)
LION = Rule(2, ("exp_avg",), has_step=False, row=_lion)


def rule_of(optimizer: Optimizer) -> Rule | None:
    """Return the rule of an optimizer, or None if the kernel does not know it with its options."""
    return rule_of_class(optimizer) if all(map(_is_plain, optimizer.param_groups)) else None


def rule_of_class(optimizer: Optimizer) -> Rule | None:
    """Return the rule of an optimizer, whatever options it has now."""
    cls = type(optimizer)
    rule = {torch.optim.Adam: ADAM, torch.optim.AdamW: ADAM, torch.optim.SGD: SGD}.get(cls)
    if rule is None and cls.__name__ == "Lion" and "betas" in optimizer.defaults:
        return LION if _is_lion(optimizer) else None
    return rule


_TRIED: weakref.WeakKeyDictionary[Optimizer, bool] = weakref.WeakKeyDictionary()


def _is_lion(optimizer: Optimizer) -> bool:
    """Whether an optimizer of that name makes the updates of Lion: it is tried, on a few numbers.

    There is no Lion in torch, and those who write their own sometimes mean something else by it.
    """
    known = _TRIED.get(optimizer)
    if known is None:
        known = _TRIED[optimizer] = _acts_as_lion(type(optimizer), optimizer.defaults)
    return known


def _acts_as_lion(cls: Any, defaults: Group) -> bool:
    generator = torch.Generator().manual_seed(0)
    start, *gradients = torch.randn(5, 16, dtype=torch.float64, generator=generator)
    tried = torch.nn.Parameter(start.clone())
    expected, moment = start.clone(), torch.zeros_like(start)
    try:
        # Loading a state adds defaults that only torch's own classes take.
        taken = inspect.signature(cls).parameters
        optimizer = cls([tried], **{k: v for k, v in defaults.items() if k in taken})
        group = optimizer.param_groups[0]
        for gradient in gradients:
            tried.grad = gradient.clone()
            optimizer.step()
            sign, rate, _, beta1, beta2, _, _, kept, *_ = _lion(group, 1)
            gradient = sign * gradient  # noqa: PLW2901 -- as the kernel has it
            turn = (moment * beta1 + gradient * (1 - beta1)).sign()
            moment = moment * beta2 + gradient * (1 - beta2)
            expected = expected * kept - rate * turn
        held = optimizer.state[tried]["exp_avg"]
    except Exception:  # noqa: BLE001 -- whatever it is, it is not made as Lion is
        return False
    return bool(torch.allclose(tried, expected) and torch.allclose(held, moment))


def _is_plain(group: Group) -> bool:
    rate = group["lr"]
    on_device = isinstance(rate, torch.Tensor) and not rate.is_cpu
    return not (group.get("amsgrad") or group.get("differentiable") or on_device)
