"""Who leads where some ranks have no batch left: loops over `stepper.batches`, in function style.

There the body of a loop says what is done, and a rank whose loader has ended has nothing to run it
with. It says so in a round, and hears in it what the others have come for. They say that once more,
and in this round it comes along. When all have ended, the loop is over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from instep.engine.ranks.headers import (
    LEAVING,
    Kind,
    Said,
    agreed,
    ranks_that,
    require_agreement,
    require_nobody_failed,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from instep.engine.ranks.together import Together

STEPS = frozenset({Kind.OPEN, Kind.BATCH, Kind.COUNTS, Kind.SHAPES, Kind.NEXT, Kind.CLOSE})
"""What steps and windows by hand consist of."""
LOOP = "loop "
"""How a rank begins to say which loop it begins."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Which optimizers close next, and whether the window is over then."""

    closing: frozenset[str]
    is_over: bool


def has_followers(heard: Sequence[Said], doing: str) -> bool:
    """Whether all is to be said once more, for ranks that have no batch left.

    Raises on all ranks if they are not in the same batch of a loop over `stepper.batches`, or if
    the others have come for what such a rank cannot take part in.
    """
    if any(said.kind in LEAVING for said in heard):
        # Whoever hears of that raises by itself.
        return False
    if len({said.place for said in heard}) > 1:
        _require_same_batch(heard)
    follows = [said.kind is Kind.FOLLOW for said in heard]
    if not any(follows) or all(follows):
        return False
    leading = [said for said in heard if said.kind is not Kind.FOLLOW]
    kinds = {said.kind for said in leading}
    if len(kinds) > 1 or not (kinds <= {Kind.NEXT} or is_errand(leading[0])):
        require_agreement(heard, doing)
    places = [said.about for said in heard if said.kind is Kind.FOLLOW]
    # Paths are compared when all have come to save.
    can_save = is_errand(leading[0]) and all(p and leading[0].about.startswith(p) for p in places)
    if not kinds <= STEPS and not can_save:
        raise _in_vain(follows, leading[0].about or doing)
    return True


def follow(together: Together, errand: str) -> Said | None:
    """Say that no batch is left; return what the others have come for, None if nobody has any.

    errand: what this rank can save with them, in the words of `errands`.
    """
    what = "the end of a loop over stepper.batches()"
    said = Said(Kind.FOLLOW, errand, streams=together.streams.news())
    heard = together.hear(said, what)
    require_nobody_failed(heard, what)
    together.is_in_step = True
    leading = [one for one in heard if one.kind not in (Kind.FOLLOW, Kind.LEFT)]
    if leading:
        return leading[0]
    if any(one.kind is Kind.LEFT for one in heard):
        # It has not heard what the others would like.
        together.any_wants_save = False
    else:
        together.streams.require_same(heard, what)
    return None


def is_errand(said: Said) -> bool:
    """Whether a rank has come to save or to load."""
    return said.kind is Kind.BEGIN and not said.about.startswith(LOOP)


def _require_same_batch(heard: Sequence[Said]) -> None:
    # What begins, and what saves, says by itself where it is.
    inside = [said for said in heard if said.kind is not Kind.BEGIN]
    loops = {said.place[:1] for said in inside}
    batches = {said.place for said in inside if said.kind is not Kind.FOLLOW}
    if len(loops) <= 1 and len(batches) <= 1:
        return
    came = "; ".join(f"rank {rank} {_place(said)}" for rank, said in enumerate(heard[:8]))
    raise agreed(
        "the ranks are not in the same batch of a loop over stepper.batches().",
        why=f"{came}. An update would be made of samples that do not belong together. The window "
        "was thrown away.",
        fix="make as many steps for each batch on every rank, also for one that is passed over; a "
        "rank that leaves such a loop alone does not go on with the next one.",
        more="ranks",
    )


def _place(said: Said) -> str:
    if not said.place:
        return "in none"
    loop, *batch = said.place
    return f"in batch {batch[0]} of loop {loop}" if batch else f"at the end of loop {loop}"


def _in_vain(follows: Sequence[bool], doing: str) -> Exception:
    ended = ranks_that(follows)
    come = ranks_that([not flag for flag in follows])
    return agreed(
        f"{come} came for {doing}, and {ended} cannot: no batch is left there.",
        why="in a loop over stepper.batches() a rank whose loader has ended takes part in the "
        "steps and windows of the others, and in nothing else: the body of its loop does not run.",
        fix="save with stepper.autosave(), or after the loop, and begin other loops there; or "
        "write it with stepper.windows(), whose body runs as often on every rank.",
        more="ranks",
    )
