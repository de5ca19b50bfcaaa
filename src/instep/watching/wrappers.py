"""What is inside of wrappers: those of DDP, of `torch.compile`, and of frameworks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

if TYPE_CHECKING:
    from collections.abc import Mapping

_WRAPPERS = ("module.", "_orig_mod.")


def core_model(model: Module) -> Module:
    """Return the model that the user has written."""
    while True:
        if isinstance(model, DistributedDataParallel):
            model = model.module
        elif "_orig_mod" in model._modules:  # noqa: SLF001
            model = model._modules["_orig_mod"]  # type: ignore[assignment]  # noqa: SLF001
        else:
            return model


def core_optimizer(optimizer: Optimizer) -> Optimizer:
    """Return the optimizer that keeps the state: one with the same groups that this one holds.

    Lightning and Accelerate wrap optimizers in others; so do optimizers that are made of two.

    >>> import torch
    >>> class Twice(Optimizer):
    ...     def __init__(self, base: Optimizer) -> None:
    ...         self.base, self.param_groups = base, base.param_groups
    >>> sgd = torch.optim.SGD([torch.zeros(1)])
    >>> core_optimizer(Twice(Twice(sgd))) is sgd
    True
    """
    seen = {id(optimizer)}
    groups = getattr(optimizer, "param_groups", None)
    while True:
        for value in list(_attributes(optimizer).values()):
            if (
                issubclass(type(value), Optimizer)
                and id(value) not in seen
                and getattr(value, "param_groups", None) is groups
            ):
                seen.add(id(value))
                optimizer = value
                break
        else:
            return optimizer


def core(thing: Any) -> Any:
    """Return what a thing stands for: itself, unless it is a wrapper."""
    # `isinstance` would ask proxies for their class, and wake up what is loaded on first use.
    kind = type(thing)
    if issubclass(kind, Module):
        return core_model(thing) if hasattr(thing, "_modules") else thing
    if issubclass(kind, Optimizer):
        return core_optimizer(thing)
    inner = _attributes(thing).get("scheduler")
    # A trainer has a scheduler, too, and does not stand for it.
    is_wrapper = issubclass(type(inner), LRScheduler) and hasattr(kind, "get_last_lr")
    return inner if is_wrapper else thing


def _attributes(thing: object) -> Mapping[str, Any]:
    try:  # not `vars`, which a proxy may answer for somebody else
        found = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return {}
    return found if isinstance(found, dict) else {}


def path_in(model: Module, part: Module) -> str:
    """Return the path of a part of a model; "" if it is none, or the whole of it."""
    return next((plain(path) for path, each in model.named_modules() if each is part), "")


def plain(path: str) -> str:
    """Return a path without what wrappers add to it."""
    for prefix in _WRAPPERS:
        path = path.replace(prefix, "")
    return path
