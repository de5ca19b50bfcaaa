"""A checkpoint in one file: `torch.save` in an envelope.

Without instep, plain PyTorch reads it from the 128th byte on:

    with open("run.ckpt", "rb") as file:
        file.seek(128)
        parts = torch.load(file, weights_only=True)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import torch

from instep.checkpoint import disk, envelope
from instep.checkpoint.envelope import EnvelopeError, Head
from instep.checkpoint.plain import first_foreign
from instep.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path

    from instep.checkpoint.envelope import Sealing

SAID = {
    "foreign": "is no checkpoint of instep",
    "unfinished": "was never finished",
    "newer": "was written by a newer instep",
    "truncated": "is cut off",
    "corrupted": "is corrupted",
}


@dataclass(frozen=True, slots=True)
class Read:
    """What was read, and from where."""

    parts: dict[str, Any]
    path: Path
    updates: int


def require_plain(parts: Any, name: str = "parts") -> None:
    """Refuse what could be written and not be read again."""
    try:
        problem = first_foreign(parts, name)
    except RecursionError:
        problem = f"{name} is nested too deeply"
    if problem is not None:
        raise CheckpointError(
            f"a checkpoint cannot hold this: {problem}.",
            why="it is read with weights_only=True, which runs no code of the file, and so reads "
            "tensors, numbers, strings, lists, tuples, sets and dicts only.",
            fix="convert it: .item() or float() for scalars of numpy, torch.from_numpy() for "
            "arrays, its state_dict() or another dict for an object.",
            more="checkpoint",
        )


def write(path: Path, parts: dict[str, Any], *, updates: int) -> Head:
    """Write a checkpoint, and return its head; it appears whole or not at all."""
    return disk.write_whole(path, lambda sealing: _serialise(parts, sealing), updates=updates)


def _serialise(parts: dict[str, Any], sealing: Sealing) -> None:
    try:
        torch.save(parts, sealing)  # type: ignore[arg-type]
    except RuntimeError as error:
        # torch ends its archive on the way out, and fails at that, too: the first one is the cause.
        first = error.__context__
        if first is None or "unexpected pos" not in str(error):
            raise
        raise first from None


def read(path: Path) -> Read:
    """Read this very file; raise what is wrong with it, and say whether the one before is whole."""
    disk.require_regular(path)
    try:
        with path.open("rb") as file:
            head = envelope.verify(file)
            return Read(_payload(file, path), path, head.updates)
    except EnvelopeError as error:
        raise _damaged(path, error) from error
    except OSError as error:
        if isinstance(error, CheckpointError):
            raise
        raise _unreadable(path, error) from error


def _payload(file: BinaryIO, path: Path) -> dict[str, Any]:
    try:
        parts = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        # The checksum is right, so this is what was written: by somebody else, or another torch.
        text = str(error).split("\n", 1)[0]
        raise CheckpointError(
            f"{path} is whole, and torch cannot read it.",
            why=f"torch says: {text}",
            fix="use the torch it was written with; instep itself writes nothing that needs more "
            "than weights_only=True.",
            more="checkpoint",
        ) from error
    if not isinstance(parts, dict):
        details = f"it holds a {type(parts).__name__}"
        raise EnvelopeError("foreign", details)
    return parts


def whole_head(path: Path) -> Head | None:
    """Return the head of a file that is there and whole, to the last byte."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            return envelope.verify(file)
    except (OSError, EnvelopeError):
        return None


def offer(path: Path) -> str | None:
    """Say how to get the checkpoint before the one at `path`, if it is whole."""
    head = whole_head(disk.previous_of(path))
    if head is None:
        return None
    return (
        f"the one before it, after {head.updates} updates, is whole: "
        "stepper.load(path, previous=True)."
    )


def _damaged(path: Path, error: EnvelopeError) -> CheckpointError:
    if error.kind == "newer":
        fix = "use the instep it was written with, or a newer one"
    elif error.kind == "foreign":
        fix = "give the path that stepper.save() was given; what torch.save wrote is read by "
        fix += "torch.load"
    else:
        fix = "nothing can be read from it"
    offered = None if path.name.endswith(".previous") else offer(path)
    if not offered:
        offered = f"there is no whole one before it, either. {_anew(path)}"
    return CheckpointError(
        f"{path} {SAID[error.kind]}.",
        why=f"{error.details}. Nothing was loaded.",
        fix=f"{fix}; {offered}",
        more="checkpoint",
    )


def _anew(path: Path) -> str:
    """Say how a run that saves itself begins anew, where nothing can be gone on from."""
    path = path.with_name(path.name.removesuffix(".previous"))
    both = [one.name for one in (path, disk.previous_of(path)) if one.exists()]
    return f"Move {' and '.join(both)} away to begin anew."


def _unreadable(path: Path, error: OSError) -> CheckpointError:
    offered = None if path.name.endswith(".previous") else offer(path)
    if not isinstance(error, FileNotFoundError):
        what, why = f"{path} cannot be read.", f"{error.strerror or error}."
    else:
        what, why = f"there is no checkpoint at {path}.", "nothing was saved there."
    if offered:
        fix = offered
    else:
        fix = (
            "give the path that stepper.save() was given; stepper.autosave(path, ...) begins anew "
        )
        fix += "where there is none."
    return CheckpointError(what, why=why, fix=fix, more="checkpoint")
