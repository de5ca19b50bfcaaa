"""Epochs in the same order, because nobody has told a `DistributedSampler` which one begins.

Its order is one of seed and epoch. Without `set_epoch` every epoch has the samples in the same
order, and every rank the same part of them, however long a job runs: no error, and a worse model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from torch.utils.data import BatchSampler, DistributedSampler

from instep.engine.around import inside_of
from instep.engine.dealt import Pass

if TYPE_CHECKING:
    from collections.abc import Iterator

    Order = tuple[int, int, int]

SURE = 3
"""Loops in one order that are no two passes of one epoch (a generator's and a discriminator's)."""


class Repeats:
    """The orders in which one stepper's loops have begun."""

    def __init__(self) -> None:
        self._seen: WeakKeyDictionary[Any, tuple[Order, int, int]] = WeakKeyDictionary()

    def look(self, loader: Any, epoch: int) -> str:
        """Look at a loop that begins, in the epoch that was counted; return what is wrong."""
        problem = ""
        for sampler in _shuffled(loader):
            order = (int(sampler.epoch), int(sampler.seed), len(sampler.dataset))
            known, since, loops = self._seen.get(sampler, (None, epoch, 0))
            if order != known:
                since, loops = epoch, 0
            loops += 1
            self._seen[sampler] = order, since, loops
            # Two loops of one epoch may go over the same order on purpose.
            if loops > 1 and (epoch != since or loops >= SURE):
                problem = f"{loops} loops in a row, with its epoch at {order[0]} in each"
        return problem


def _shuffled(loader: Any) -> Iterator[Any]:
    """Yield the samplers whose order is one of seed and epoch, for certain."""
    for one in inside_of(loader) or ():
        begun = one.batches if isinstance(one, Pass) else one
        places = [getattr(begun, name, None) for name in ("sampler", "batch_sampler")]
        # The iterator of a loader has it under another name.
        places.append(getattr(begun, "_index_sampler", None))
        for place in places:
            sampler: Any = place.sampler if type(place) is BatchSampler else place
            # Of a class of a user's nothing is certain; of one sample there is one order.
            is_its = type(sampler) is DistributedSampler and sampler.shuffle
            if is_its and len(sampler.dataset) > 1:
                yield sampler
                break
