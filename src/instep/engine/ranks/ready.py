"""An update that begins on all ranks or on none, where a window can be replayed."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from instep.engine.ranks.headers import PeerOutOfMemoryError, is_agreed, mark

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch.optim import Optimizer

    from instep.engine.careful import CarefulStep


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

    def say_so(self, error: RuntimeError) -> None:
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
