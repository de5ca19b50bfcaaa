"""What a checkpoint of a stepper holds, and how it is put back: all of it, or nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from instep.checkpoint import disk, files
from instep.checkpoint.background import Writing
from instep.checkpoint.plain import copied
from instep.engine import state
from instep.errors import StateError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from instep.engine.loop import Loop
    from instep.engine.stepper import Stepper

    PathLike = str | os.PathLike[str]

VERSION = 1


@dataclass(frozen=True, slots=True)
class Loaded:
    """Which checkpoint was loaded; what `stepper.load` returns."""

    path: Path
    updates: int
    """Updates that had been made when it was saved."""
    is_previous: bool
    """Whether it is the one before the last."""
    extra: Any
    """What was given to `stepper.save(extra=...)`."""


def save(stepper: Stepper, path: PathLike, *, extra: Any, wait: bool) -> Writing:
    """Save everything that a run needs to go on."""
    place = disk.place_of(path)
    parts = gather(stepper, extra)
    files.require_plain(extra, "extra")
    for name, part in parts.items():
        files.require_plain(part, name)
    if not wait:
        parts = copied(parts)
    updates = parts["stepper"]["index"]
    writing = Writing(place, updates, lambda: files.write(place, parts, updates=updates))
    writing.start(wait=wait)
    return writing


def load(stepper: Stepper, loop: Loop, path: PathLike, *, previous: bool) -> Loaded:
    """Put back what was saved; nothing changes unless all of it fits."""
    place = disk.place_of(path)
    found = files.read(disk.previous_of(place) if previous else place)
    put_back(stepper, loop, found.parts)
    return Loaded(found.path, found.updates, previous, found.parts["extra"])


def gather(stepper: Stepper, extra: Any) -> dict[str, Any]:
    """Return every part of a run as plain data; tensors are those that train, not copies."""
    # First, because it raises where a run cannot be continued from.
    own = stepper.state_dict()
    return {
        "version": VERSION,
        "models": [_bare(model).state_dict() for model in stepper.models],
        "optimizers": {
            name: [optimizer.state_dict() for optimizer in together]
            for name, together in stepper.optimizers.items()
        },
        "schedulers": {
            name: [(type(one).__name__, _state_of(one)) for one in listed]
            for name, listed in stepper.schedulers.items()
        },
        "stepper": own,
        "extra": extra,
    }


def _bare(model: nn.Module) -> nn.Module:
    """Return the module itself: torch.compile wraps it, and would change every name."""
    inner = getattr(model, "_orig_mod", None)
    return inner if isinstance(inner, nn.Module) else model


def _state_of(scheduler: Any) -> Any:
    return scheduler.state_dict() if hasattr(scheduler, "state_dict") else {}


def put_back(stepper: Stepper, loop: Loop, parts: dict[str, Any]) -> None:
    """Load the parts of a checkpoint into a stepper's model, optimizers and schedulers, and it."""
    problem = next(_misfits(stepper, parts), None)
    if problem is not None:
        raise StateError(
            f"this checkpoint does not fit: {problem}.",
            why="it was saved with another model, optimizer or scheduler. Nothing was loaded.",
            fix="build everything as it was when it was saved; what changed by intention is loaded "
            "by itself, from torch.load (instep explain checkpoint).",
            more="checkpoint",
        )
    state.require_loadable(loop, parts["stepper"])
    for model, saved in zip(stepper.models, parts["models"], strict=True):
        _bare(model).load_state_dict(saved)
    for name, together in stepper.optimizers.items():
        for optimizer, saved in zip(together, parts["optimizers"][name], strict=True):
            optimizer.load_state_dict(saved)
    for name, listed in stepper.schedulers.items():
        for scheduler, (_, saved) in zip(listed, parts["schedulers"][name], strict=True):
            if hasattr(scheduler, "load_state_dict"):
                scheduler.load_state_dict(saved)
    # Last: it puts back the random states.
    stepper.load_state_dict(parts["stepper"])


def _misfits(stepper: Stepper, parts: dict[str, Any]) -> Iterator[str]:
    names = ("version", "models", "optimizers", "schedulers", "stepper", "extra")
    missing = [name for name in names if name not in parts]
    if missing:
        yield f"it has no {', '.join(missing)}"
        return
    if parts["version"] != VERSION:
        yield f"it has version {parts['version']}, this is {VERSION}"
        return
    if len(parts["models"]) != len(stepper.models):
        yield f"it has {len(parts['models'])} models, this stepper {len(stepper.models)}"
        return
    for model, saved in zip(stepper.models, parts["models"], strict=True):
        yield from _model_misfits(_bare(model).state_dict(), saved)
    yield from _optimizer_misfits(stepper, parts["optimizers"])
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
