"""Streams that are not the same on all ranks: samples would come twice, and others never.

Each rank takes its turns of a stream that it draws itself. What it has passed over is two numbers
after 1, 2, 4, 8, ... items and at the end (`instep.engine.passed`). They travel in headers that are
sent anyway, at the start of a loop and at closes, each once. All ranks hear all of them and keep
them, so that ranks of which one is far ahead are compared when the other has come as far.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from instep.engine.passed import End, Numbers
from instep.engine.ranks.headers import agreed, ranks_that
from instep.errors import four_lines, warn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from instep.engine.passed import Passed
    from instep.engine.ranks.headers import Said
    from instep.errors import WindowError

AT_ONCE = 3
"""Levels that are said in one header, the lowest first: a rank that is ahead says the same ones."""
END = -1
ENOUGH = 3
"""From this level on names that were all the same so far count as none."""

_FIX = (
    "let the stream come in the same order everywhere: seed its generator in __iter__ with the "
    "same number on every rank (one of the epoch, told by set_epoch). Change samples at random "
    "in collate_fn, after they were dealt out. A stream that is a rank's own needs no shard()."
)


@dataclass(eq=False)
class _Followed:
    """The stream of a loop, and what was said of it."""

    loop: int
    passed: Passed
    begun_at: int
    """The epoch before: until another is begun, there is nothing to say."""
    level: int = -1
    is_ended: bool = False

    def news(self) -> list[list[int]]:
        if self.is_ended or self.passed.epoch == self.begun_at:
            return []
        found = [
            [self.loop, level, self.passed.workers, *numbers]
            for level, numbers in self.passed.levels().items()
            if level > self.level
        ][:AT_ONCE]
        end = self.passed.end()
        if end is not None:
            found.append([self.loop, END, self.passed.workers, *end.numbers, end.items, end.bag])
        return found


class Streams:
    """What the ranks of one stepper have said of the streams that they draw."""

    def __init__(self, rank: int, world: int) -> None:
        self._rank, self._world = rank, world
        self._loops = 0
        self._followed: _Followed | None = None
        self._unsaid: list[list[int]] = []
        """Of the loop before: a loop in function style ends after its last close."""
        self._told: dict[tuple[int, int], dict[int, list[int]]] = {}
        self._has_warned = False

    def begin(self, passed: Passed | None) -> None:
        """Begin a loop; over a stream that is dealt out, if there is one."""
        # Who deals out to some ranks only may have a stream for each part of them.
        if passed is None or passed.ranks != self._world:
            return
        self._loops += 1
        self._unsaid = [] if self._followed is None else self._followed.news()
        self._followed = _Followed(self._loops, passed, passed.epoch)
        self._told = {k: told for k, told in self._told.items() if k[0] >= self._loops - 1}

    def news(self) -> list[list[int]]:
        """Return what is to be said: nothing in most rounds."""
        return self._unsaid + ([] if self._followed is None else self._followed.news())

    def require_same(self, heard: Sequence[Said], doing: str) -> None:
        """Raise if ranks have passed over different items; warn if that cannot be told."""
        self._unsaid = []
        for loop, level, *_ in heard[self._rank].streams:
            if self._followed is not None and self._followed.loop == loop:
                self._followed.level = max(self._followed.level, level)
                self._followed.is_ended |= level == END
        touched = {(row[0], row[1]) for said in heard for row in said.streams}
        for rank, said in enumerate(heard):
            for loop, level, *values in said.streams:
                self._told.setdefault((loop, level), {})[rank] = values
        for key in sorted(touched):
            self._compare(self._told[key], key[1], len(heard), doing)

    def _compare(self, told: dict[int, list[int]], level: int, world: int, doing: str) -> None:
        told = dict(sorted(told.items()))
        values = list(told.values())
        if all(each == values[0] for each in values):
            return
        # What most ranks have is taken for right.
        usual = max(values, key=values.count)
        first = next(rank for rank, each in told.items() if each == usual)
        other = [told.get(rank, usual) != usual for rank in range(world)]
        difference = _difference([_read(each) for each in values])
        named = f"{ranks_that(other)} and rank {first}"
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
