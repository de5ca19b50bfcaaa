"""Which ranks are not like the others, and how to say so: plain numbers, no tensors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_N = TypeVar("_N")
_TOLERANCE = 1e-5
"""Relative: devices may round differently; ranks that train apart differ by more than that."""
_MOST_NAMED = 4


class Numbers(NamedTuple):
    """What one rank says about its model after an update."""

    made: int
    """Updates."""
    asked: int
    """Updates with those that were skipped."""
    reduced: int
    """Backwards whose gradients were averaged over all ranks: a clock that all ranks share."""
    weights: tuple[float, ...] = ()


class Apart(NamedTuple):
    """Ranks that are not like the others, and what is to be said about them."""

    ranks: tuple[int, ...]
    says: str


class Ending(NamedTuple):
    """What one rank says about an optimizer when its program is over."""

    made: int
    reduced: int
    has_finished: bool
    """Its program came to its end, and nobody stopped it."""
    has_fallen: bool
    """A backward raised: under DDP that is where a rank waits for the others."""
    weights: tuple[float, ...] = ()
    """After the last update, if nobody has changed them since: one rank may load others to test."""


def apart_after(
    numbers: Mapping[int, Numbers], first_made: Callable[[int], int | None]
) -> Apart | None:
    """Compare ranks after the same number of updates.

    `first_made` says how many updates rank 0 had made when so many gradients were averaged.
    """
    made = _updates(numbers[0].made)
    odd, usual = _sides(numbers, lambda one, other: one.asked == other.asked)
    if odd:
        says = f"{named(odd)} skipped other updates than {_usual(usual)} on the way to {made}"
        return Apart(odd, says)
    odd, usual = _sides(numbers, lambda one, other: one.reduced == other.reduced)
    if odd:
        return Apart(odd, _stepped(numbers, odd, usual, first_made))
    odd, usual = _sides(numbers, lambda one, other: not differs(one.weights, other.weights))
    if odd:
        says = f"{named(odd)} {_has(odd)} other weights than {_usual(usual)} after {made}"
        return Apart(odd, says)
    return None


def apart_at_the_end(endings: Mapping[int, Ending]) -> Apart | None:
    """Compare ranks whose programs are over.

    >>> three = [Ending(made, 9, True, False) for made in (9, 8, 9)]
    >>> apart_at_the_end(dict(enumerate(three))).says
    'rank 1 has made 8 updates, where rank 0 has made 9'
    """
    if all(each.has_finished for each in endings.values()):
        odd, usual = _sides(endings, lambda one, other: one.made == other.made)
        if odd and len({each.reduced for each in endings.values()}) == 1:
            mine, theirs = endings[odd[0]].made, endings[usual[0]].made
            updates = _updates(mine)
            says = f"{named(odd)} {_has(odd)} made {updates}, where {_usual(usual)} "
            return Apart(odd, f"{says}{_has(_told(usual))} made {theirs:,}")
        return _weigh(endings)
    ended = tuple(rank for rank, each in endings.items() if each.has_finished)
    fallen = tuple(rank for rank, each in endings.items() if each.has_fallen)
    if ended and fallen:
        updates = _updates(endings[ended[0]].made)
        waited = "it" if len(ended) == 1 else "them"
        says = f"{named(ended)} ended after {updates}, while {named(fallen)} waited for {waited}"
        return Apart(ended, f"{says} in another backward")
    return None


def _weigh(endings: Mapping[int, Ending]) -> Apart | None:
    """Compare the weights of ranks that have made the same number of updates."""
    if len({each.made for each in endings.values()}) > 1:
        return None
    if not all(each.weights for each in endings.values()):
        return None
    odd, usual = _sides(endings, lambda one, other: not differs(one.weights, other.weights))
    if not odd:
        return None
    made = _updates(endings[usual[0]].made)
    says = f"{named(odd)} {_has(odd)} other weights than {_usual(usual)} after {made}, at the end"
    return Apart(odd, says)


def differs(mine: Sequence[float], other: Sequence[float]) -> bool:
    """Say whether two ranks' numbers are those of different weights; NaN is like NaN.

    >>> differs([1.0, 0.5], [1.0, 0.5 + 1e-9]), differs([1.0, 0.5], [1.0, 0.6])
    (False, True)
    """
    broken = [not all(map(math.isfinite, numbers)) for numbers in (mine, other)]
    if any(broken):
        return not all(broken)
    size = max(abs(mine[0]), abs(other[0]), 1e-30)
    return any(abs(a - b) > _TOLERANCE * size for a, b in zip(mine, other, strict=True))


def named(ranks: Sequence[int]) -> str:
    """Return the names of some ranks.

    >>> named([3]), named(range(1, 9))
    ('rank 3', 'ranks 1, 2, 3, 4 and 4 more')
    """
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    rest = len(ranks) - _MOST_NAMED
    first = ", ".join(map(str, ranks[:_MOST_NAMED]))
    return f"ranks {first}" + (f" and {rest} more" if rest > 0 else "")


def _sides(
    numbers: Mapping[int, _N], is_same: Callable[[_N, _N], bool]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ranks that are not like most, and most; of two equal halves, rank 0 is in most."""
    groups: list[list[int]] = []
    for rank, each in sorted(numbers.items()):
        for group in groups:
            if is_same(numbers[group[0]], each):
                group.append(rank)
                break
        else:
            groups.append([rank])
    usual = max(groups, key=len, default=[])
    return tuple(rank for rank in sorted(numbers) if rank not in usual), tuple(usual)


def _stepped(
    numbers: Mapping[int, Numbers],
    odd: tuple[int, ...],
    usual: tuple[int, ...],
    first_made: Callable[[int], int | None],
) -> str:
    """Say how often ranks have stepped by the time that so many gradients were averaged."""
    says = f"{named(odd)} {_has(odd)} stepped another number of times than {_usual(usual)}"
    # Only rank 0 knows how often it had stepped when the other one was there.
    other = usual[0] if 0 in odd else odd[0]
    then = numbers[other].reduced
    mine = first_made(then)
    if mine is None or mine == numbers[other].made:
        return says
    of_odd, of_usual = (mine, numbers[other].made) if 0 in odd else (numbers[other].made, mine)
    return (
        f"{says}: {_updates(of_odd)} after {then:,} averaged gradients, "
        f"where {_usual(usual)} made {of_usual:,}"
    )


def _told(usual: tuple[int, ...]) -> tuple[int, ...]:
    return (0,) if 0 in usual else usual


def _usual(usual: tuple[int, ...]) -> str:
    return named(_told(usual))


def _has(ranks: Sequence[int]) -> str:
    return "has" if len(ranks) == 1 else "have"


def _updates(number: int) -> str:
    return "1 update" if number == 1 else f"{number:,} updates"
