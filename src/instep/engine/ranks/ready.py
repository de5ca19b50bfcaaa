"""What begins on all ranks or on none: an update that can be replayed, messages that need room."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, TypeVar

from instep.engine.memory import is_out_of_memory
from instep.engine.ranks.headers import (
    Kind,
    PeerOutOfMemoryError,
    Said,
    is_agreed,
    mark,
    require_room,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch.optim import Optimizer

    from instep.engine.careful import CarefulStep

T = TypeVar("T")


def with_room(round_of: Callable[[Said, str], list[Said]], make: Callable[[], T], what: str) -> T:
    """Take the memory for what follows; every rank hears whether all have it.

    Who has too little would leave the others waiting for what it cannot send.
    """
    made: list[T] = []
    problem = None
    try:
        made.append(make())
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        problem = error
    heard = round_of(Said(Kind.READY, what, out_of_memory=problem is not None), what)
    if problem is not None:
        mark(problem)
        raise problem
    require_room(heard, what)
    return made[0]


class Ready:
    """A careful step that first agrees with the other ranks that all can make it."""

    def __init__(self, agree: Callable[[bool], None], step: CarefulStep) -> None:
        self._agree = agree
        self._step = step
        self._has_asked = False

    def __call__(self, optimizers: Sequence[Optimizer]) -> None:
        """Agree, then step."""
        self._ask(out_of_memory=False)
        # The others update now: from here on, this rank cannot go back alone.
        self._step.has_begun = True
        self._step(optimizers)

    def say_so(self, error: BaseException) -> None:
        """Tell the others that this rank ran out of memory before it could begin."""
        if not self._has_asked and not is_agreed(error):
            with contextlib.suppress(PeerOutOfMemoryError):
                self._ask(out_of_memory=True)
            mark(error)

    def _ask(self, *, out_of_memory: bool) -> None:
        try:
            self._agree(out_of_memory)
        except BaseException as error:
            self._has_asked = is_agreed(error)
            raise
        self._has_asked = True
