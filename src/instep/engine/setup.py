"""What a Stepper is built from, checked before it exists."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from instep.engine import gradients as grads
from instep.engine.flattening import why_not_flat
from instep.errors import SetupError, four_lines, warn
from instep.splits.micro import whole_number

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from instep.engine.ranks.world import Ranks

ONLY = "optimizer"


def models_of(model: Any) -> list[nn.Module]:
    """Return the modules a stepper trains."""
    given = [model] if isinstance(model, nn.Module) else model
    models = list(given) if isinstance(given, Iterable) else [given]
    for module in models:
        if not isinstance(module, nn.Module):
            raise SetupError(
                f"model is a {type(module).__name__}, not a torch.nn.Module.",
                why="the engine looks at its parameters, their devices and their names.",
                fix="pass the module, or a list of modules.",
                more="setup",
            )
    return models


def optimizers_of(optimizer: Any) -> dict[str, tuple[Optimizer, ...]]:
    """Return the optimizers by name, each one usable and no parameter in two of them."""
    given = dict(optimizer) if isinstance(optimizer, Mapping) else {ONLY: optimizer}
    named = {
        name: tuple(one) if isinstance(one, list | tuple) else (one,) for name, one in given.items()
    }
    if not named or not all(named.values()):
        raise SetupError(
            "no optimizer was given.",
            why="a window ends with an update.",
            fix="pass an optimizer, a list of them, or a mapping of names to optimizers.",
            more="setup",
        )
    owner: dict[int, tuple[str, int]] = {}
    listed = [(name, candidate) for name, together in named.items() for candidate in together]
    for position, (name, candidate) in enumerate(listed):
        _require_optimizer(name, candidate)
        for parameter in grads.parameters_of([candidate]):
            other, place = owner.setdefault(id(parameter), (name, position))
            if place != position:
                raise SetupError(
                    f"a parameter of shape {tuple(parameter.shape)} is in two optimizers, "
                    f"of {other!r} and {name!r}.",
                    why="both would update it, from gradients that each of them normalises and "
                    "clears.",
                    fix="give each parameter to one optimizer; use parameter groups for "
                    "different rates.",
                    more="several-optimizers",
                )
    return named


def _require_optimizer(name: object, optimizer: Any) -> None:
    if not isinstance(name, str) or not name:
        raise SetupError(
            f"an optimizer is named {name!r}.",
            why="its name is used in window.backward(..., optimizer=name) and in results.",
            fix='name it with a string: {"generator": ..., "discriminator": ...}.',
            more="several-optimizers",
        )
    if not all(hasattr(optimizer, part) for part in ("param_groups", "step", "state_dict")):
        raise SetupError(
            f"{name} is a {type(optimizer).__name__}, not an optimizer.",
            why="it has no parameter groups to update.",
            fix="pass a torch.optim.Optimizer, or a mapping of names to optimizers.",
            more="setup",
        )
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise SetupError(
            f"{type(optimizer).__name__} evaluates the loss itself, through a closure.",
            why="it calls forward and backward several times per update, so there is no window "
            "whose gradient it could be given.",
            fix="use an optimizer that steps from gradients (SGD, AdamW, ...), or run this one "
            "without instep.",
            more="closures",
        )


def require_same_devices(
    models: Iterable[nn.Module], optimizers: Mapping[str, Sequence[Optimizer]]
) -> None:
    """Refuse parameters that were moved or replaced after their optimizer was built."""
    names = {id(p): n for model in models for n, p in model.named_parameters()}
    devices = {p.device for model in models for p in model.parameters()}
    for name, optimizer in ((n, o) for n, together in optimizers.items() for o in together):
        for parameter in grads.parameters_of([optimizer]):
            known = names.get(id(parameter))
            if known is None and devices and parameter.device not in devices:
                _refuse_devices(
                    f"{name!r} holds a parameter on {parameter.device}; the model is on "
                    f"{', '.join(map(str, sorted(devices, key=str)))}.",
                )
            for key, value in optimizer.state.get(parameter, {}).items():
                if _belongs(value, parameter) and value.device != parameter.device:
                    _refuse_devices(
                        f"parameter {known!r} is on {parameter.device}, its {key} in {name!r} on "
                        f"{value.device}.",
                    )


def _belongs(value: object, parameter: Tensor) -> bool:
    # Step counters stay on the CPU by design; only what has the parameter's shape must follow it.
    return isinstance(value, torch.Tensor) and value.dim() > 0 and value.shape == parameter.shape


def _refuse_devices(what: str) -> None:
    raise SetupError(
        what,
        why="the model was moved or its parameters were replaced after the optimizer was built or "
        "loaded, so the optimizer would update something else.",
        fix="move the model first, then build the optimizer and load its state.",
        more="devices",
    )


def schedulers_of(
    scheduler: Any, optimizers: Mapping[str, Sequence[Optimizer]]
) -> dict[str, list[Any]]:
    """Return the schedulers of each optimizer; each knows its own."""
    given = [] if scheduler is None else scheduler
    if isinstance(given, Mapping):
        unknown = sorted(set(given) - set(optimizers))
        if unknown:
            raise SetupError(
                f"scheduler names {unknown}, which are not optimizers of this stepper.",
                why=f"it has {list(optimizers)}.",
                fix="use the names the optimizers were given, or pass a list.",
                more="schedulers",
            )
        given = list(given.values())
    listed = list(given) if isinstance(given, list | tuple) else [given]
    by_name: dict[str, list[Any]] = {name: [] for name in optimizers}
    for one in listed:
        if isinstance(one, ReduceLROnPlateau):
            raise SetupError(
                "ReduceLROnPlateau cannot count updates.",
                why="each of its steps needs a measured metric, which a window does not have.",
                fix="leave it out of Stepper and call its step(metric) after your evaluation; give "
                'it to stepper.autosave(..., extra={"plateau": plateau}), or its state is lost '
                "when the run is resumed.",
                more="schedulers",
            )
        if not callable(getattr(one, "step", None)):
            raise SetupError(
                f"scheduler is a {type(one).__name__} without step().",
                why="it is stepped once after every update.",
                fix="pass a torch.optim.lr_scheduler, or a list of them.",
                more="schedulers",
            )
        owner = getattr(one, "optimizer", None)
        names = [name for name, together in optimizers.items() if any(o is owner for o in together)]
        if not names and owner is None and len(optimizers) == 1:
            names = list(optimizers)
        if not names:
            raise SetupError(
                f"the optimizer of a {type(one).__name__} is not in this stepper.",
                why="a scheduler advances when its own optimizer has updated.",
                fix="build the scheduler from an optimizer that is passed to Stepper.",
                more="schedulers",
            )
        by_name[names[0]].append(one)
    return by_name


def limits_of(limit: Any, option: str, names: Iterable[str]) -> dict[str, float | None]:
    """Return a clipping limit per optimizer."""
    names = list(names)
    given = dict(limit) if isinstance(limit, Mapping) else dict.fromkeys(names, limit)
    unknown = sorted(set(given) - set(names))
    for name, value in given.items():
        if value is not None and not (isinstance(value, Real) and float(value) > 0):
            raise SetupError(
                f"{option} is {value!r}{f' for {name}' if len(names) > 1 else ''}.",
                why="it is the largest norm or value that a gradient keeps: a positive number.",
                fix=f"pass {option}=1.0, or leave it out; {option}=math.inf only measures.",
                more="clipping",
            )
    if unknown:
        raise SetupError(
            f"{option} names {unknown}, which are not optimizers of this stepper.",
            why=f"it has {names}.",
            fix="use the names the optimizers were given.",
            more="clipping",
        )
    return {name: None if given.get(name) is None else float(given[name]) for name in names}


def require_options(
    norms: Mapping[str, float | None],
    values: Mapping[str, float | None],
    *,
    empty: str,
    fused: bool,
    capture: bool | int,
) -> None:
    """Refuse options that do not go together."""
    if any(norms[name] is not None and values[name] is not None for name in norms):
        raise SetupError(
            "clip_norm and clip_value were both given.",
            why="a gradient is clipped once, by its norm or by its values.",
            fix="pass one of them.",
            more="clipping",
        )
    if empty not in ("skip", "raise"):
        raise SetupError(
            f"empty is {empty!r}.",
            why="a window without items is skipped or raises.",
            fix='pass empty="skip" or empty="raise".',
            more="empty-window",
        )
    if not isinstance(capture, bool | int) or capture < 0:
        raise SetupError(
            f"capture is {capture!r}.",
            why="it is True or False, or how many micro-steps may run side by side.",
            fix="pass capture=True, or a number such as capture=4.",
            more="fast",
        )
    if capture and not fused:
        raise SetupError(
            f"capture={capture} without fused=True.",
            why="a recording adds to gradients that stay where they are: the flat buffers.",
            fix="pass fused=True as well.",
            more="fast",
        )


def require_alone(ranks: Ranks, *, fused: bool) -> None:
    """Refuse options that are for one process."""
    if fused and not ranks.is_alone:
        raise SetupError(
            "fused=True on several ranks.",
            why="its kernel updates from gradients that are still those of one rank.",
            fix="leave fused and capture out; the optimizer's own fused=True works.",
            more="ranks",
        )


def accumulation_of(dtype: Any) -> torch.dtype | None:
    """Return the type that narrower gradients are summed in."""
    if dtype is None or (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        return dtype
    raise SetupError(
        f"accumulate_in is {dtype!r}.",
        why="it is the type in which gradients of narrower parameters are summed.",
        fix="pass accumulate_in=torch.float32, or None for the parameters' own types.",
        more="precision",
    )


def sizes_of(size: Any, names: Iterable[str]) -> dict[str, int]:
    """Return the window size of each optimizer, in micro-batches."""
    names = list(names)
    given = dict(size) if isinstance(size, Mapping) else dict.fromkeys(names, size)
    for name in names:
        value = given.get(name)
        if (whole_number(value) or 0) < 1:
            missing = isinstance(size, Mapping) and name not in size
            raise SetupError(
                f"size has no entry for {name!r}."
                if missing
                else f"size is {value!r}{f' for {name}' if len(names) > 1 else ''}.",
                why="it is how many micro-batches one update is made of.",
                fix="pass size=8, or a mapping with a size for each optimizer.",
                more="window-size",
            )
    if set(given) - set(names):
        raise SetupError(
            f"size names {sorted(set(given) - set(names))}, which are not optimizers of this "
            f"stepper.",
            why=f"it has {names}.",
            fix="use the names the optimizers were given.",
            more="window-size",
        )
    return {name: int(given[name]) for name in names}


def can_be_flat(models: Sequence[nn.Module], name: str, optimizers: Sequence[Optimizer]) -> bool:
    """Whether the kernel can make the updates of these optimizers; if not, a warning says why."""
    reason = why_not_flat(models, optimizers)
    if reason is None:
        return True
    text = four_lines(
        f"fused=True has no effect for {name!r}.",
        why=f"{reason}. Its windows close the portable way, with the same numbers.",
        fix="use AdamW, Adam, SGD or Lion on a CUDA device, or leave fused=True out.",
        more="fast",
    )
    warn(text)
    return False


def warn_if_not_captured(optimizers: Iterable[Optimizer]) -> None:
    """Say that nothing will be recorded, if none of these is on a device that records.

    `optimizers` are those whose updates the kernel makes.
    """
    members = grads.parameters_of(optimizers)
    if any(parameter.is_cuda for parameter in members):
        return
    kinds = sorted({parameter.device.type for parameter in members})
    where = f"the parameters are on {', '.join(kinds)}" if kinds else "fused=True has no effect"
    text = four_lines(
        "capture has no effect.",
        why=f"micro-steps are recorded as CUDA graphs, and {where}. They run as usual, with the "
        "same numbers.",
        fix="move the model to a CUDA device before the optimizer is built, or leave capture out.",
        more="fast",
    )
    warn(text)
