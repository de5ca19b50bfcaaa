"""One run saves itself at a path: a second one would go on from the first one's checkpoints.

Their files stay whole, as writers take turns (`checkpoint.locks`), but each run would replace the
other's. In one process that is refused. Another process is noticed when what is at the path is not
what this run has put there.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from instep.checkpoint import disk, envelope, folders
from instep.checkpoint.envelope import EnvelopeError
from instep.errors import SetupError

if TYPE_CHECKING:
    from pathlib import Path

    from instep.engine.autosave import Autosave

# Those inside of a `with` block. One without may be over, and nobody says so: a cell that is run
# again, a program that goes on after an error.
_runs: WeakValueDictionary[Path, Autosave] = WeakValueDictionary()
_guard = threading.Lock()


def require_free(path: Path) -> None:
    """Raise if a run of this process saves itself there."""
    if path in _runs:
        raise SetupError(
            f"another run of this process saves itself at {path}.",
            why="this one would go on from the other's checkpoint, and each would put its own in "
            "the place of the other's.",
            fix="give each stepper a path of its own, or let the first `with` block end before.",
            more="autosave",
        )


def claim(path: Path, run: Autosave) -> None:
    """Note that a run saves itself there; raise if another one does."""
    with _guard:
        require_free(path)
        _runs[path] = run


def release(path: Path, run: Autosave) -> None:
    """Note that it does no more."""
    with _guard:
        if _runs.get(path) is run:
            del _runs[path]


def seal_of(place: Path) -> str:
    """Return what tells the checkpoint at a path from every other; empty if there is none.

    Of a file it is the checksum in its head, of a folder the name of the last that is finished.
    """
    if disk.is_folder(place):
        found = folders.finished(place)
        return found[-1].name if found else ""
    try:
        with place.open("rb") as file:
            return envelope.read_head(file).digest.hex()
    except (OSError, EnvelopeError):
        return ""
