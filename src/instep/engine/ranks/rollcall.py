"""Who is missing: asked through the group's store when a collective has failed.

A rank that gives up leaves its reason there, because its message may be lost with its connections.
A rank whose collective failed says that it is here, and looks who else is. It looks no longer than
needed: until all have answered, one has left a reason, or one is all that is missing where a
connection was closed; otherwise for `ROLL_CALL` seconds.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from instep.engine.ranks.world import Ranks

ROLL_CALL = 10.0
"""Seconds that a rank whose collective failed waits for others to say that they are there."""
RECONNECT = 2.0
"""Seconds that it tries to reach the store: who held it may be the one that is gone."""
PAUSE = 0.05

_counted: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
"""How many steppers talk in a group: each has rounds of its own."""


@dataclass(frozen=True, slots=True)
class Absence:
    """Who is missing, as far as it can be known."""

    ranks: list[bool]
    """Of every rank, whether it is missing; none if nothing is known."""
    reasons: dict[int, str] = field(default_factory=dict)
    """What those said that gave up."""


class RollCall:
    """The roll calls of one stepper's ranks."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        number = _counted[ranks.group] = _counted.get(ranks.group, 0) + 1
        self._prefix = f"instep/{number}"
        self._store: Any = None
        """A connection of its own for looking while a device waits."""

    def leave(self, rounds: int, reason: str, *, is_silent: bool = False) -> None:
        """Say why this rank gives up, before a round that the others may come to.

        is_silent: whether it sends nothing at all from here on, not even that.
        """
        store = store_of(self._ranks.group)
        # Without it, the others find out that this rank is missing, and not why.
        with contextlib.suppress(RuntimeError):
            if store is not None:
                number = store.add(f"{self._prefix}/left", 1)
                store.set(f"{self._prefix}/left/{number}", f"{rounds} {self._ranks.rank} {reason}")
                store.add(f"{self._prefix}/silent", int(is_silent))

    def is_silent(self) -> bool:
        """Return whether a rank has given up without sending its part of what others wait for."""
        self._store = self._store or store_of(self._ranks.group)
        if self._store is None:
            return False
        # A store that cannot be asked any more was taken along by who held it.
        with contextlib.suppress(RuntimeError):
            return bool(self._store.add(f"{self._prefix}/silent", 0) > 0)
        return False

    def call(self, rounds: int, waited: float, *, is_closed: bool) -> Absence:
        """Say that this rank is here, and return who is not, or has come much later.

        waited: seconds that this rank had been in the collective.
        is_closed: whether a connection was closed, so that a process has ended.
        """
        world = self._ranks.world
        holder = _holder_of(self._ranks.group)
        # Of two, who is gone has taken the store along: to look for it would take seconds.
        is_known = is_closed and world == 2 and any(holder) and not holder[self._ranks.rank]
        store = None if is_known else store_of(self._ranks.group)
        if store is None:
            return Absence(self._without_store(is_closed=is_closed))
        here = f"{self._prefix}/here/{rounds}"
        try:
            store.set(f"{here}/{self._ranks.rank}", f"{waited:.3f}")
            answered = store.add(here, 1)
            until = time.monotonic() + ROLL_CALL
            while not (reasons := self._left(store, rounds)):
                # Somebody is gone: the only one who does not answer.
                if answered >= world - int(is_closed) or time.monotonic() > until:
                    break
                time.sleep(PAUSE)
                answered = store.add(here, 0)
            if not reasons:
                keys = [f"{here}/{rank}" for rank in range(world)]
                found = [float(store.get(key)) if store.check([key]) else None for key in keys]
            self._let_read(store, here)
        except RuntimeError:
            return Absence(self._without_store(is_closed=is_closed))
        if reasons:
            return Absence([rank in reasons for rank in range(world)], reasons)
        missing = [seconds is None for seconds in found]
        if is_closed and any(missing):
            return Absence(missing)
        longest = max(seconds or 0.0 for seconds in found)
        # Who has just come finds the others gone already.
        return Absence([(seconds or 0.0) < 0.5 * longest for seconds in found])

    def _let_read(self, store: Any, here: str) -> None:
        """Say that this rank has read the answers; who holds the store waits for the others to."""
        read = store.add(f"{here}/read", 1)
        until = time.monotonic() + RECONNECT
        while self._holds_store() and read < store.add(here, 0) and time.monotonic() < until:
            time.sleep(PAUSE)
            read = store.add(f"{here}/read", 0)

    def _holds_store(self) -> bool:
        holder = _holder_of(self._ranks.group)
        return bool(holder) and holder[self._ranks.rank]

    def _left(self, store: Any, rounds: int) -> dict[int, str]:
        """Return the reasons of others who gave up before this round was over."""
        last = store.add(f"{self._prefix}/left", 0)
        found: dict[int, str] = {}
        # One for each rank at most is of this round; those before are of loops that all have left.
        for number in range(max(last - self._ranks.world, 0), last):
            key = f"{self._prefix}/left/{number + 1}"
            if store.check([key]):
                at, rank, reason = store.get(key).decode(errors="replace").split(" ", 2)
                if int(at) >= rounds and int(rank) != self._ranks.rank:
                    found[int(rank)] = reason
        return found

    def _without_store(self, *, is_closed: bool) -> list[bool]:
        """Return who is missing where the store cannot be asked."""
        ranks = self._ranks
        nobody = [False] * ranks.world
        if not is_closed:
            return nobody
        if ranks.world == 2:  # one of two is gone, and this one is not
            return [rank != ranks.rank for rank in range(ranks.world)]
        return _holder_of(ranks.group) or nobody


def _holder_of(group: Any) -> list[bool]:
    """Return which rank holds the store in its own process, if one does: the first of all."""
    import torch.distributed as dist  # noqa: PLC0415 -- in use already

    try:
        is_tcp = type(_bare(_made_with(group))).__name__ == "TCPStore"
        # Of torchrun, it is the process that started the ranks.
        if not is_tcp or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
            return []
        return [rank == 0 for rank in dist.get_process_group_ranks(group)]
    except (AttributeError, KeyError, RuntimeError):
        return []


def _made_with(group: Any) -> Any:
    import torch.distributed.distributed_c10d as c10d  # noqa: PLC0415 -- in use already

    return c10d._world.pg_map[group][1]  # noqa: SLF001 -- there is no public way


def _bare(store: Any) -> Any:
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return store


def store_of(group: Any) -> Any:
    """Return the store that the group was made with, or a copy that waits only a moment."""
    try:
        store = _made_with(group)
        if hasattr(store, "clone"):
            # A copy connects anew, for as long as the original would wait: the group's timeout.
            usual = store.timeout
            store.set_timeout(timedelta(seconds=min(RECONNECT, ROLL_CALL)))
            try:
                copy = store.clone()
            finally:
                store.set_timeout(usual)
            store = copy
        store.set_timeout(timedelta(seconds=ROLL_CALL))
    except (AttributeError, KeyError, RuntimeError, TypeError):
        return None
    return store
