"""Whether a checkpoint fits: the same models, optimizers and schedulers as when it was saved."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from torch import Tensor

from instep.engine.spreading import bare

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from instep.engine.stepper import Stepper


def makes(stepper: Stepper) -> dict[str, list[dict[str, Any]]]:
    """Return the class of each optimizer, and the names of its parameters in their order.

    Its state has them by number only: moments would go to whatever parameter is in that place.
    """
    names = _names(stepper)
    return {
        name: [
            {
                "class": type(one).__name__,
                "parameters": [[names.get(id(p)) for p in g["params"]] for g in one.param_groups],
            }
            for one in together
        ]
        for name, together in stepper.optimizers.items()
    }


def _names(stepper: Stepper) -> dict[int, str]:
    """Return the names of the parameters by identity, with the model's number if several."""
    several = len(stepper.models) > 1
    return {
        id(parameter): f"models[{index}].{name}" if several else name
        for index, model in enumerate(stepper.models)
        for name, parameter in bare(model).named_parameters()
    }


def misfits(stepper: Stepper, parts: dict[str, Any], version: int) -> Iterator[str]:
    """Yield what keeps the parts of a checkpoint from being put back into this stepper."""
    names = ("version", "models", "optimizers", "schedulers", "stepper", "extra")
    missing = [name for name in names if name not in parts]
    if missing:
        yield f"it has no {', '.join(missing)}"
        return
    if parts["version"] != version:
        yield f"it has version {parts['version']}, this is {version}"
        return
    if len(parts["models"]) != len(stepper.models):
        yield f"it has {len(parts['models'])} models, this stepper {len(stepper.models)}"
        return
    for model, saved in zip(stepper.models, parts["models"], strict=True):
        yield from _model_misfits(bare(model).state_dict(), saved)
    yield from _optimizer_misfits(stepper, parts["optimizers"])
    # Files of before have none.
    yield from _make_misfits(stepper, parts.get("makes", {}))
    kinds = {name: [kind for kind, _ in listed] for name, listed in parts["schedulers"].items()}
    here = {
        name: [type(one).__name__ for one in listed] for name, listed in stepper.schedulers.items()
    }
    if kinds != here:
        yield f"it has schedulers {kinds}, this stepper {here}"


def _model_misfits(here: Mapping[str, Any], saved: Mapping[str, Any]) -> Iterator[str]:
    for name in (name for name in here if name not in saved):
        yield f"it has no {name!r}, which the model has"
    for name in (name for name in saved if name not in here):
        yield f"the model has no {name!r}, which it has"
    for name in (name for name in saved if name in here):
        one, other = saved[name], here[name]
        if not isinstance(one, Tensor) or not isinstance(other, Tensor):
            continue
        if one.shape != other.shape:
            yield f"{name!r} is {tuple(one.shape)} there and {tuple(other.shape)} in the model"
        elif one.dtype != other.dtype:
            yield f"{name!r} is {one.dtype} there and {other.dtype} in the model"


def _optimizer_misfits(stepper: Stepper, saved: Mapping[str, Any]) -> Iterator[str]:
    if saved.keys() != stepper.optimizers.keys():
        yield f"it has optimizers {sorted(saved)}, this stepper {sorted(stepper.optimizers)}"
        return
    for name, together in stepper.optimizers.items():
        there = [[len(g["params"]) for g in one["param_groups"]] for one in saved[name]]
        here = [[len(g["params"]) for g in one.param_groups] for one in together]
        if there != here:
            yield f"{name!r} has parameters in groups of {there} there, and of {here} here"


def _make_misfits(stepper: Stepper, saved: Mapping[str, Any]) -> Iterator[str]:
    known = set(_names(stepper).values())
    here = makes(stepper)
    for name, there in saved.items():
        for one, other in zip(there, here.get(name, ()), strict=False):
            if one["class"] != other["class"]:
                yield f"{name!r} is {one['class']} there and {other['class']} here"
            flat = [chain.from_iterable(each["parameters"]) for each in (one, other)]
            pairs = zip(*flat, strict=False)
            for number, (before, now) in enumerate(pairs):
                # A name that is unknown here belongs to a model that was wrapped in another way.
                if before in known and now is not None and before != now:
                    yield (
                        f"parameter {number} of {name!r} is {before!r} there and {now!r} here: "
                        "they are in another order"
                    )
