"""What a run saves along for its user: plain data, and objects that have a state of their own."""

from __future__ import annotations

import hashlib
import io
from typing import TYPE_CHECKING, Any

import torch

from instep.checkpoint import files
from instep.engine import saving
from instep.errors import CheckpointError, StateError

if TYPE_CHECKING:
    from instep.engine.loop import Loop


def states_of(extra: dict[str, Any]) -> dict[str, Any]:
    """Return what is saved: of an object, its state.

    >>> list(states_of({"best": 0.5, "mean": torch.nn.Linear(1, 1)})["mean"])
    ['weight', 'bias']
    """
    return {key: value.state_dict() if has_state(value) else value for key, value in extra.items()}


def has_state(value: object) -> bool:
    """Whether an object is saved and loaded by methods of its own."""
    names = ("state_dict", "load_state_dict")
    return not isinstance(value, type) and all(callable(getattr(value, n, None)) for n in names)


def fill(extra: dict[str, Any], saved: Any, loop: Loop) -> None:
    """Take over what was saved: objects load their state, and stay the objects they are."""
    saved = {} if saved is None else saved
    if not isinstance(saved, dict):
        raise StateError(
            f"the extra of this checkpoint is no dict, but of type {type(saved).__name__}.",
            why="it was saved by stepper.save(extra=...), and autosave fills a dict from it.",
            fix="load it with stepper.load(path), whose result has it; or save a dict.",
            more="autosave",
        )
    for key, value in list(extra.items()):
        if not has_state(value):
            continue
        if key not in saved:
            loop.core.warn(
                f"extra[{key!r}] is not in this checkpoint: the {type(value).__name__} begins "
                "anew.",
                why="it was not among what was saved with the run then.",
                fix="nothing to do, if it is new; otherwise name it as it was named.",
                more="autosave",
            )
        elif isinstance(value, torch.optim.Optimizer):
            saving.load_optimizer(loop, value, saved[key])
        else:
            value.load_state_dict(saved[key])
    extra.update({key: value for key, value in saved.items() if not has_state(extra.get(key))})


def digest_of(extra: dict[str, Any]) -> str | None:
    """Return a fingerprint, so that a change is known without a copy; None if there is none."""
    states = states_of(extra)
    try:
        files.require_plain(states, "extra")
    except CheckpointError:
        # Saving tells of it.
        return None
    written = io.BytesIO()
    torch.save(states, written)
    return hashlib.sha256(written.getbuffer()).hexdigest()
