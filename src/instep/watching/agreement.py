"""Whether all ranks of a job hold the same model: compared through the process group's store.

Every rank writes a few numbers under a key of its own, and rank 0 reads those that are there.
Nobody waits, and nothing takes part in what the ranks exchange.
"""

from __future__ import annotations

import gc
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parallel import DistributedDataParallel

from instep.watching.later import Later, sliced

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from instep.trace import Place
    from instep.watching.gauges import Gauges
    from instep.watching.series import Series

EVERY = 32
"""Updates between two comparisons; at the beginning they are at 1, 2, 4, 8, 16."""
_SLICE = 4096
_SLOTS = 8
"""Comparisons that are kept in the store: the next one takes the place of the oldest."""
_TOLERANCE = 1e-5
"""Relative: devices may round differently; ranks that train apart differ by more than that."""
_MOST_NAMED = 4


@dataclass
class _Sum:
    """What one rank says about its model after a number of updates."""

    optimizer: str
    made: int
    asked: int
    """Updates with those that were skipped."""
    value: Later
    place: Place | None


class Ranks:
    """Writes this rank's numbers; on rank 0, compares everybody's."""

    def __init__(self, series: Series, gauges: Gauges) -> None:
        self._series = series
        self._gauges = gauges
        self._shared: dict[int, Any] | None = None  # parameters that are the same on all ranks
        self._looks = 0
        self.leaving: list[_Sum] = []
        """Numbers that were not sent yet."""
        self._open: list[tuple[_Sum, list[float]]] = []

    def after_step(self, optimizer: Optimizer, name: str, place: Place | None) -> None:
        """Take the numbers of an update, if it is time, and send what has arrived."""
        asked = self._series.updates.get(name, 0)
        made = asked - self._series.skipped.get(name, 0)
        if self.leaving or is_round(made):
            store = _store()
            if store is None:
                return
            if is_round(made):
                self._take(optimizer, _Sum(name, made, asked, Later(0.0), place))
            self._send(store)
            if is_round(made):
                self._compare(store)

    def finish(self) -> None:
        """Compare what the other ranks have written by now."""
        store = _store() if self.leaving or self._open else None
        if store is not None:
            self._send(store)
            self._compare(store)

    def _take(self, optimizer: Optimizer, said: _Sum) -> None:
        shared = self._replicated()
        mine = [p for group in optimizer.param_groups for p in group["params"] if id(p) in shared]
        if mine:
            weight = sliced(max(mine, key=torch.Tensor.numel), _SLICE).double()
            # A sum alone would not see two weights change places.
            signs = torch.arange(weight.numel(), device=weight.device) % 3 - 1.0
            value = torch.stack([weight.norm(), weight.sum(), (weight * signs).sum()])
            said.value = Later(value)
            self.leaving.append(said)

    def _replicated(self) -> dict[int, Any]:
        """Return the parameters of models under DDP, which a job may wrap after some time."""
        if self._shared or (self._shared is not None and self._looks > 3):
            return self._shared
        self._looks += 1
        self._shared = {
            id(parameter): None
            for thing in gc.get_objects()
            if issubclass(type(thing), DistributedDataParallel) and _is_plain(thing)
            for parameter in thing.parameters()
        }
        return self._shared

    def _send(self, store: Any) -> None:
        rank = torch.distributed.get_rank()
        waiting = []
        for said in self.leaving:
            if not said.value.is_here:
                waiting.append(said)
                continue
            numbers = [float(said.made), float(said.asked), *said.value.numbers]
            store.set(_key(said, rank), json.dumps(numbers))
            if rank == 0:
                self._open.append((said, numbers))
        self.leaving = waiting
        del self._open[:-_SLOTS]

    def _compare(self, store: Any) -> None:
        """Read the other ranks' numbers, where they are all there."""
        ranks = range(1, torch.distributed.get_world_size())
        left = []
        for said, mine in self._open:
            keys = [_key(said, rank) for rank in ranks]
            if not store.check(keys):
                left.append((said, mine))
                continue
            others = {
                rank: json.loads(text)
                for rank, text in zip(ranks, store.multi_get(keys), strict=True)
            }
            if any(numbers[0] < mine[0] for numbers in others.values()):
                left.append((said, mine))  # an older one is still in somebody's slot
                continue
            self._judge(said, mine, others)
        self._open = left

    def _judge(self, said: _Sum, mine: list[float], others: dict[int, list[float]]) -> None:
        same = {rank: numbers for rank, numbers in others.items() if numbers[0] == mine[0]}
        skipped = [rank for rank, numbers in same.items() if numbers[1] != mine[1]]
        apart = [rank for rank, numbers in same.items() if differs(mine[2:], numbers[2:])]
        updates = "1 update" if said.made == 1 else f"{said.made:,} updates"
        if apart:
            verb = "has" if len(apart) == 1 else "have"
            says = f"{_ranks(apart)} {verb} other weights than rank 0 after {updates}"
        elif skipped:
            says = f"{_ranks(skipped)} skipped other updates than rank 0 on the way to {updates}"
        else:
            return
        self._gauges.show(
            "ranks-disagree",
            said.optimizer,
            float(len(apart or skipped)),
            unit="ranks",
            subject=says,
            place=said.place,
        )


def is_round(made: int) -> bool:
    """Say whether the ranks are compared after this many updates.

    >>> [made for made in range(100) if is_round(made)]
    [1, 2, 4, 8, 16, 32, 64, 96]
    """
    return made > 0 and (made % EVERY == 0 or (made < EVERY and made & (made - 1) == 0))


def differs(mine: list[float], other: list[float]) -> bool:
    """Say whether two ranks' numbers are those of different weights; NaN is like NaN.

    >>> differs([1.0, 0.5], [1.0, 0.5 + 1e-9]), differs([1.0, 0.5], [1.0, 0.6])
    (False, True)
    """
    broken = [not all(map(math.isfinite, numbers)) for numbers in (mine, other)]
    if any(broken):
        return not all(broken)
    size = max(abs(mine[0]), abs(other[0]), 1e-30)
    return any(abs(a - b) > _TOLERANCE * size for a, b in zip(mine, other, strict=True))


def _key(said: _Sum, rank: int) -> str:
    # The same slot on every rank: rounds after the first ones are EVERY updates apart.
    slot = said.made.bit_length() if said.made < EVERY else said.made // EVERY % _SLOTS + _SLOTS
    return f"instep/{said.optimizer}/{slot}/{rank}"


def _ranks(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    rest = len(ranks) - _MOST_NAMED
    named = ", ".join(map(str, ranks[:_MOST_NAMED]))
    return f"ranks {named}" + (f" and {rest} more" if rest > 0 else "")


def _is_plain(model: DistributedDataParallel) -> bool:
    """Say whether a model is kept equal on all ranks: hooks may do something else on purpose."""
    if getattr(model, "_comm_hooks", None):
        return False
    size: int = model.process_group.size()
    return size == torch.distributed.get_world_size()


def _store() -> Any:
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return None
    if distributed.get_world_size() < 2:
        return None
    return distributed.distributed_c10d._get_default_store()  # noqa: SLF001  # there is no other way
