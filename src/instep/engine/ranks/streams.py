"""Loaders that are not the same on all ranks: samples would come twice, and others never.

Each rank takes its turns of an order, or of a stream, that it draws itself. Of an order there is
one number, of all that it deals out; of what was passed over of a stream two after 1, 2, 4, 8, ...
items and at the end (`instep.engine.passed`). They travel in headers that are sent anyway, at the
start of a loop and at closes, each once. All ranks hear all of them and keep them, so that ranks of
which one is far ahead are compared when the other has come as far.

A loop may draw from several loaders, one in another. The first that is drawn from on one rank is
compared with the first on another, and so on, unless these were not made in the same place of the
program.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from instep.engine.passed import End, Numbers
from instep.engine.ranks.headers import agreed, ranks_that
from instep.errors import four_lines, warn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from instep.engine.dealt import Told
    from instep.engine.ranks.headers import Said
    from instep.errors import WindowError

AT_ONCE = 3
"""Levels that are said in one header, the lowest first: a rank that is ahead says the same ones."""
ROWS = 6
"""What is said in one header of all loaders together: it is to stay small."""
KEPT = 64
"""Passes of one loop of which not all was said; one that goes round for ever has many."""
END, DEAL = -1, -2
ENOUGH = 3
"""From this level on names that were all the same so far count as none."""

_FIX = (
    "let the stream come in the same order everywhere: seed its generator in __iter__ with the "
    "same number on every rank (one of the epoch, told by set_epoch). Change samples at random "
    "in collate_fn, after they were dealt out. A stream that is a rank's own needs no shard()."
)


@dataclass(eq=False)
class _Followed:
    """A pass over a loader, and what was said of it."""

    loop: int
    place: int
    """Which one of its loop it is."""
    told: Told
    level: int = -1
    is_ended: bool = False
    is_dealt: bool = False
    """Whether its order was said."""

    def news(self) -> list[list[int]]:
        start = [self.loop, self.place]
        found: list[list[int]] = []
        if self.told.deal is not None and not self.is_dealt:
            found.append([*start, DEAL, self.told.serial, *self.told.deal])
        passed = self.told.passed
        if passed is None or self.is_ended:
            return found
        levels, end = passed.seen(self.told.epoch)
        about = [self.told.serial, passed.workers]
        if end is not None:
            found.append([*start, END, *about, *end.numbers, end.items, end.bag])
        new = {level: numbers for level, numbers in levels.items() if level > self.level}
        return found + [[*start, level, *about, *new[level]] for level in sorted(new)[:AT_ONCE]]

    def was_said(self, level: int) -> None:
        self.level = max(self.level, level)
        self.is_ended |= level == END
        self.is_dealt |= level == DEAL


class Streams:
    """What the ranks of one stepper have said of the loaders that they draw from."""

    def __init__(self, rank: int, world: int) -> None:
        self._rank, self._world = rank, world
        self._loops = self._places = 0
        self._followed: list[_Followed] = []
        """Also of the loop before: a loop in function style ends after its last close."""
        self._told: dict[tuple[int, int, int], dict[int, list[int]]] = {}
        self._has_warned = False

    def begin(self) -> None:
        """Begin a loop, whatever it draws from."""
        self._loops += 1
        self._places = 0
        self._followed = [each for each in self._followed if each.loop >= self._loops - 1]
        self._told = {k: told for k, told in self._told.items() if k[0] >= self._loops - 1}

    def follow(self, told: Told) -> None:
        """Hear of a pass over a loader that is dealt out, which the loop begins to draw from."""
        place, self._places = self._places, self._places + 1
        # Who deals out to some ranks only may have an order for each part of them.
        if told.dealt_to == self._world:
            self._followed = [*self._followed, _Followed(self._loops, place, told)][-KEPT:]

    def news(self) -> list[list[int]]:
        """Return what is to be said: nothing in most rounds."""
        rows = [row for each in self._followed for row in each.news()]
        # An end says most, and may have no other chance to be heard.
        return sorted(rows, key=lambda row: row[2] >= 0)[:ROWS]

    def require_same(self, heard: Sequence[Said], doing: str) -> None:
        """Raise if ranks have passed over different items; warn if that cannot be told."""
        own = {(each.loop, each.place): each for each in self._followed}
        for loop, place, level, *_ in heard[self._rank].streams:
            if (loop, place) in own:
                own[loop, place].was_said(level)
        touched = {(row[0], row[1], row[2]) for said in heard for row in said.streams}
        for rank, said in enumerate(heard):
            for loop, place, level, *values in said.streams:
                self._told.setdefault((loop, place, level), {})[rank] = values
        for key in sorted(touched):
            told = self._told[key]
            if len(told) == self._world:
                del self._told[key]
            # Loops that choose among loaders at random have another one at this place.
            if len({serial for serial, *_ in told.values() if serial}) <= 1:
                self._compare({rank: told[rank][1:] for rank in sorted(told)}, key[2], doing)

    def _compare(self, told: dict[int, list[int]], level: int, doing: str) -> None:
        values = list(told.values())
        if all(each == values[0] for each in values):
            return
        # What most ranks have is taken for right.
        usual = max(values, key=values.count)
        first = next(rank for rank, each in told.items() if each == usual)
        other = [told.get(rank, usual) != usual for rank in range(self._world)]
        named = f"{ranks_that(other)} and rank {first}"
        if level == DEAL:
            raise _other_order(named, {length for _, length in values})
        difference = _difference([_read(each) for each in values])
        if difference:
            raise _unequal(named, difference, doing)
        if self._has_warned or not _may_differ([_read(each)[1] for each in values], level):
            return
        self._has_warned = True
        text = four_lines(
            f"{named} have different samples at the same places of a stream that shard() deals "
            "out.",
            why="either it comes in another order on each, so that samples come twice and others "
            "never; or it is the same, and what it holds (numbers, texts, images) is drawn or "
            f"changed at random on the way, which is fine. It was found at {doing}. (Said once.)",
            fix=_FIX,
            more="ranks",
        )
        warn(text)


def _read(values: list[int]) -> tuple[int, Numbers, End | None]:
    workers, names, looks, *rest = values
    numbers = Numbers(names, looks)
    return workers, numbers, End(rest[0], numbers, rest[1]) if rest else None


def _may_differ(told: list[Numbers], level: int) -> bool:
    """Whether these may be other samples: their names differ, or looks where names say nothing."""
    if len({each.names for each in told}) > 1:
        return True
    is_enough = level == END or level >= ENOUGH
    return is_enough and not told[0].names and len({each.looks for each in told}) > 1


def _difference(told: list[tuple[int, Numbers, End | None]]) -> str:
    """Say in which way streams are different for certain; nothing if they may be the same."""
    workers = {each[0] for each in told}
    if len(workers) > 1:
        return f"their loaders have {_listed(workers)} workers"
    ends = [end for _, _, end in told if end is not None]
    lengths = {end.items for end in ends}
    if len(lengths) > 1:
        return f"they had {_listed(lengths)} samples at the end"
    if ends and len({end.bag for end in ends}) == 1:
        return "the same samples came in another order"
    return ""


def _listed(numbers: set[int]) -> str:
    return " and ".join(map(str, sorted(numbers)))


def _unequal(named: str, difference: str, doing: str) -> WindowError:
    return agreed(
        f"{named} do not draw the same stream from shard(): {difference}.",
        why="each rank takes its turns of the stream that it draws itself, so that samples come "
        "twice and others never. It shuffles with a generator that is not seeded alike "
        "(random.shuffle, torch.randperm), deals its samples out by rank already, or changes them "
        f"at random. It was found at {doing}, which did not happen on any rank.",
        fix=_FIX,
        more="ranks",
    )


def _other_order(named: str, lengths: set[int]) -> WindowError:
    how = f": of {_listed(lengths)} samples or batches" if len(lengths) > 1 else ""
    return agreed(
        f"{named} draw different orders from shard(){how}.",
        why="each takes its turns in its own order, so that samples come twice and others "
        "never. Their seeds differ (those of the loaders' own generators, where there is no "
        "seed=), they were told different epochs, their data or batches are not the same, a "
        "sampler draws from something of its own, or one has begun more epochs of its loader "
        "than the other: to look at one batch begins one, too.",
        fix="build data and sampler alike on every rank, pass the same seed=, and iterate the "
        "loader as often on each; look at samples through another loader. Data that are a rank's "
        "own need no shard().",
        more="ranks",
    )
