"""What failed on other ranks while torch wrote or read tensors, in instep's words.

`torch.distributed.checkpoint` gathers what each rank has raised, an interrupt too, and raises one
`CheckpointException` of its own on all of them. That is no `Exception`, and says nothing in one
line: each rank gets back what it has raised itself, and the others an error that names it.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from instep.checkpoint import disk
from instep.checkpoint.talk import elsewhere
from instep.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from instep.checkpoint.talk import Talk


def gathered(error: BaseException) -> dict[int, BaseException]:
    """Return what ranks have raised, by their numbers; none if nobody has gathered that."""
    failures = getattr(error, "failures", None)
    if not isinstance(failures, dict):
        return {}
    pairs = ((rank, e[0] if isinstance(e, tuple) else e) for rank, e in failures.items())
    return {rank: e for rank, e in sorted(pairs) if isinstance(e, BaseException)}


def told(error: BaseException, talk: Talk, folder: Path | None) -> BaseException:
    """Return what this rank raises for what torch has gathered, as all do in the same place.

    folder: what was being written there, which an error of the disk speaks of.
    """
    found = {rank: _in_words(e, folder) for rank, e in gathered(error).items()}
    raised = found.get(talk.rank) or elsewhere("the checkpoint", found)
    talk.mark(raised)
    return raised


def _in_words(error: BaseException, folder: Path | None) -> BaseException:
    if folder is None or isinstance(error, CheckpointError) or not isinstance(error, OSError):
        return error
    said = disk.explanation(folder, error)
    # Decides what follows from it, here and where it is told of.
    said.__cause__ = error
    return said


@contextlib.contextmanager
def sorted_out(talk: Talk, folder: Path | None = None) -> Iterator[None]:
    """Surround what torch does on all ranks."""
    try:
        yield
    except BaseException as error:
        if not gathered(error):
            raise
        raised = told(error, talk, folder)
        raise raised from raised.__cause__
