"""Whether all ranks have come to save or to load a checkpoint, and to the same place.

Asked in the way that windows agree, before anything else is sent: ranks that are there for another
thing hear of it, and one that does not come is named.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from instep.engine.ranks.following import has_followers
from instep.engine.ranks.headers import (
    LEAVING,
    Kind,
    Said,
    agreed,
    mark,
    ranks_that,
    require_agreement,
)
from instep.errors import CheckpointError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from instep.engine.ranks.together import Together


@dataclass(frozen=True, slots=True)
class Errand:
    """What ranks come for, in the words of errors."""

    about: str
    """What a rank says that comes for it, before the path."""
    what: str
    verb: str
    call: str
    undone: str


SAVE = Errand(
    "a checkpoint at ", "the checkpoint", "save to", "stepper.save()", "Nothing was written."
)
LOAD = Errand(
    "loading from ", "loading a checkpoint", "load from", "stepper.load()", "Nothing was loaded."
)
AUTOSAVE = Errand(
    "autosave at ",
    "the start of autosave",
    "autosave at",
    "stepper.autosave()",
    "Nothing was loaded or written.",
)

ASIDE = "wait=False"
"""How a checkpoint is written while training goes on."""


def require_all(
    together: Together | None,
    errand: Errand,
    path: str | os.PathLike[str],
    place: Path,
    gather: Callable[[Any], list[Any]],
    *,
    how: str = "",
) -> None:
    """Raise unless all ranks have come for the same; `place` is where a path leads in the end."""
    if together is None:
        return
    given = f"{Path(path).absolute()}{how and f' ({how})'}"
    weights = together.weights_between() if errand is SAVE else ()
    said = Said(Kind.BEGIN, f"{errand.about}{given}", weights=weights)
    exchange = together._exchange  # noqa: SLF001 -- what a loop has heard last must stay as it is
    heard = exchange.round(said, errand.what)
    if any(one.kind is Kind.FOLLOW for one in heard) and has_followers(heard, errand.what):
        heard = exchange.round(said, errand.what)
    elsewhere = [not one.about.startswith(errand.about) for one in heard]
    if any(elsewhere):
        if any(one.kind in LEAVING for one in heard):
            require_agreement(heard, errand.what)
        raise agreed(
            f"{ranks_that(elsewhere)} did not come to {errand.verb.split()[0]}, but for something "
            "else.",
            why="all ranks save and load together, at the same place in the program. "
            f"{errand.undone}",
            fix=f"call {errand.call} on every rank, without `if rank == 0`.",
            more="checkpoint",
        )
    if errand is SAVE:
        together.drift.require_same(heard, errand.what)
    paths = [one.about.removeprefix(errand.about) for one in heard]
    if len(set(paths)) > 1 and len(set(gather((str(place), how)))) > 1:
        raise _elsewhere(paths, errand)


def _elsewhere(paths: Sequence[str], errand: Errand) -> CheckpointError:
    asked = "; ".join(
        f"{path} on {ranks_that([each == path for each in paths])}"
        for path in list(dict.fromkeys(paths))[:8]
    )
    error = CheckpointError(
        f"ranks {errand.verb} different paths, or not in the same way: {asked}.",
        why=f"a checkpoint of several ranks is one folder, written and read by all of them in the "
        f"same way. {errand.undone}",
        fix="give all ranks the same path and options; a time or a random number in a path is "
        "drawn on one rank and sent to the others.",
        more="checkpoint",
    )
    mark(error)
    return error
