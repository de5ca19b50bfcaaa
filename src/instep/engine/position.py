"""Where a run is in its data: what a resumed one puts back, skips and draws again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from instep.engine import rng
from instep.errors import StateError

if TYPE_CHECKING:
    import torch

ResumeBy = Literal["count", "loader"]


@dataclass(frozen=True, slots=True)
class Position:
    """How to come back: skip what was done, draw again what was drawn and not done, set random."""

    skip: int
    redraw: list[rng.RandomState]
    """For each batch drawn and not done: the random state before it was drawn."""
    random: rng.RandomState
    """What to put back then; without torch's part where drawing again leads there by itself."""
    epoch_random: rng.RandomState
    generators: dict[str, torch.Tensor]
    """The states, at the epoch's start, of the generators that the loader was given."""
    is_reused: bool
    """Whether the epoch began with workers that had served an epoch before."""
    loader: Any = None
    """The state of the loader itself, before the first batch that was not done; if it was asked."""
    begins_at: int = 0
    """How much of the epoch was done before its loop began, where other ranks had begun it."""
    turns: dict[str, int] | None = None
    """How the ranks take turns, if the loader was made by `instep.distributed.shard`."""
    left: dict[str, torch.Tensor] | None = None
    """The states of the generators as they are now: something else may draw from them, too."""
    is_over: bool = False
    """Whether the loader was found at its end: torch's sampler draws once more there."""


class Mark(NamedTuple):
    """Before a draw: torch's random states, the loader's own, and those of Python and numpy."""

    random: Any
    loader: Any
    others: Any = None


def random_of(mark: Any) -> rng.RandomState:
    """Return torch's part of what was noted before a draw."""
    return rng.widened(mark.random if isinstance(mark, Mark) else mark)


def others_of(mark: Any) -> rng.RandomState:
    """Return the parts of Python and numpy, where they were noted."""
    has_others = isinstance(mark, Mark) and mark.others is not None
    return rng.widened_others(mark.others) if has_others else {}


def require_same_way(position: Position, by: ResumeBy) -> None:
    """Refuse to come back in another way than the one that was saved."""
    if (position.loader is not None) != (by == "loader"):
        saved = "count" if position.loader is None else "loader"
        raise StateError(
            f'the state was saved with resume="{saved}", this loop has resume="{by}".',
            why="one counts batches and the other has the loader's own state.",
            fix=f'resume with resume="{saved}".',
            more="resume",
        )


def other_loader(why: str, *, is_plain: bool = False) -> StateError:
    """Return the error; `is_plain`: the loader was dealt out to ranks then, and is not now."""
    shard = ": instep.distributed.shard(loader), as then, on one rank as well" if is_plain else ""
    return StateError(
        "this is not the loader the state was saved with.",
        why=f"a resumed loop draws the same batches again and skips what was done; {why}",
        fix=f"resume with the same loader{shard}, or call stepper.discard() to start a new epoch.",
        more="resume",
    )
