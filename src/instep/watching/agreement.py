"""Whether all ranks of a job hold the same model: compared through the process group's store.

Every rank writes a few numbers under a key of its own, and rank 0 reads those that are there.
Nobody waits, and nothing takes part in what the ranks exchange.
"""

from __future__ import annotations

import gc
import json
import weakref
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parallel import DistributedDataParallel

from instep.watching.apart import Ending, Numbers, apart_after, apart_at_the_end
from instep.watching.later import Later, sliced

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch.nn import Module
    from torch.optim import Optimizer

    from instep.trace import Place
    from instep.watching.apart import Apart
    from instep.watching.entries import Touched
    from instep.watching.gauges import Gauges
    from instep.watching.series import Series

_QUANTITY = "ranks-disagree"
EVERY = 32
"""Updates between two comparisons; at the beginning they are at 1, 2, 4, 8, 16."""
_SLICE = 4096
_SLOTS = 8
"""Comparisons that are kept in the store: the next one takes the place of the oldest."""
_REMEMBERED = EVERY * _SLOTS
"""Updates of which rank 0 knows when it has made them."""


@dataclass
class _Sum:
    """What one rank says about its model after a number of updates."""

    optimizer: str
    made: int
    asked: int
    reduced: int
    value: Later
    place: Place | None


class _Largest:
    """The largest parameter of an optimizer that all ranks have, as its last step has left it."""

    def __init__(self) -> None:
        self._weak: Any = None
        self._version = 0

    def see(self, optimizer: Optimizer, replicated: Callable[[], Mapping[int, Any]]) -> None:
        """Take note of the version after a step."""
        parameter = None if self._weak is None else self._weak()
        if parameter is None:
            shared = replicated()
            every = (p for group in optimizer.param_groups for p in group["params"])
            parameter = max((p for p in every if id(p) in shared), key=_size, default=None)
            self._weak = None if parameter is None else weakref.ref(parameter)
        if parameter is not None:
            self._version = parameter._version  # noqa: SLF001

    def unchanged(self) -> torch.Tensor | None:
        """Return it, unless somebody has written to it after the last step."""
        found: torch.Tensor | None = None if self._weak is None else self._weak()
        is_same = found is not None and found._version == self._version  # noqa: SLF001
        return found if is_same else None


def _size(parameter: torch.Tensor) -> int:
    return parameter.numel()


def _numbers(parameter: torch.Tensor) -> torch.Tensor:
    weight = sliced(parameter, _SLICE).double()
    # A sum alone would not see two weights change places.
    signs = torch.arange(weight.numel(), device=weight.device) % 3 - 1.0
    return torch.stack([weight.norm(), weight.sum(), (weight * signs).sum()])


class Ranks:
    """Writes this rank's numbers; on rank 0, compares everybody's."""

    def __init__(self, series: Series, gauges: Gauges) -> None:
        self._series = series
        self._gauges = gauges
        self._shared: dict[int, Any] | None = None  # parameters under DDP, by id, and their model
        self._looks = 0
        self.leaving: list[_Sum] = []
        """Numbers that were not sent yet."""
        self._open: list[tuple[_Sum, Numbers]] = []
        self.pending: dict[str, bool] = {}
        """Forwards before their backward, by model: whether that averages gradients."""
        self._sees_forwards = False
        self._reduced = 0
        self._is_joined = False
        self._has_fallen = False
        self._asked, self._is_spread = -1, False  # at which update, and whether there are others
        self._past: dict[str, deque[tuple[int, int]]] = {}  # by optimizer: reduced, made
        self._places: dict[str, Place | None] = {}  # of steps
        self._watched: dict[str, _Largest] = {}

    # The clock that all ranks share

    def forward(self, id_: str, model: Module, *, sync: bool) -> None:
        """Take note of a call of a model under DDP."""
        if not isinstance(model, DistributedDataParallel) or not _is_plain(model):
            return
        self._sees_forwards = True
        self.pending[id_] = sync
        # Under `join`, ranks make different numbers of updates, and get the same weights at its
        # end: there is nothing to compare.
        self._is_joined = self._is_joined or bool(getattr(_join_of(model), "enable", False))

    def after_backward(self, touched: Touched) -> None:
        """Count a backward whose gradients were averaged."""
        if self.pending:
            self._reduced += sum(self.pending.pop(model, False) for model in touched.models)
        elif not self._sees_forwards and self._has_others():
            # Models are hooked after the first step; until then the wrapper itself is asked.
            shared = self._replicated() if self._shared is None else self._shared
            models = {shared[key] for key in touched.keys if key in shared}
            alive = [model for weak in models if (model := weak()) is not None]
            self._reduced += sum(model.require_backward_grad_sync for model in alive)

    def _has_others(self) -> bool:
        """Say whether there are other ranks: asked once in an update, because that takes long."""
        if self._asked != self._series.made:
            self._asked, self._is_spread = self._series.made, _store() is not None
        return self._is_spread

    def fell(self) -> None:
        """Take note of a backward that has raised."""
        self._has_fallen = any(self.pending.values())

    # Updates

    @property
    def is_counting(self) -> bool:
        """Whether gradients were averaged, so that every update counts."""
        return self._reduced > 0

    def after_step(self, optimizer: Optimizer, name: str, place: Place | None) -> None:
        """Take the numbers of an update, if it is time, and send what has arrived."""
        asked = self._series.updates.get(name, 0)
        made = asked - self._series.skipped.get(name, 0)
        if self._reduced:
            past = self._past.setdefault(name, deque(maxlen=_REMEMBERED))
            past.append((self._reduced, made))
            self._places[name] = place
            self._watched.setdefault(name, _Largest()).see(optimizer, self._replicated)
        if self._is_joined:
            self.leaving, self._open = [], []
            return
        if self.leaving or is_round(made):
            store = _store()
            if store is None:
                return
            if is_round(made):
                self._take(optimizer, _Sum(name, made, asked, self._reduced, Later(0.0), place))
            self._send(store)
            if is_round(made):
                self._compare(store)

    def finish(self) -> None:
        """Compare what the other ranks have written by now."""
        store = _store() if self.leaving or self._open else None
        if store is not None:
            self._send(store)
            self._compare(store, is_over=True)

    def endings(self, *, has_finished: bool) -> dict[str, Ending]:
        """Return what is to be compared when the programs of all ranks are over, by optimizer."""
        if self._is_joined:
            return {}
        return {
            name: Ending(
                past[-1][1], self._reduced, has_finished, self._has_fallen, self._weights(name)
            )
            for name, past in self._past.items()
        }

    def _weights(self, name: str) -> tuple[float, ...]:
        watched = self._watched.get(name)
        parameter = None if watched is None else watched.unchanged()
        return () if parameter is None else tuple(_numbers(parameter).tolist())

    def compare(self, everybody: Mapping[int, Mapping[str, Ending]]) -> None:
        """Compare how the ranks have ended; what was known before says more, and stays."""
        known = {gauge.optimizers for gauge in self._gauges if gauge.quantity == _QUANTITY}
        for name in self._past:
            said = {rank: each[name] for rank, each in everybody.items() if name in each}
            apart = apart_at_the_end(said) if (name,) not in known else None
            if apart is not None:
                self._show(name, apart, self._places.get(name))

    def _take(self, optimizer: Optimizer, said: _Sum) -> None:
        shared = self._replicated()
        mine = [p for group in optimizer.param_groups for p in group["params"] if id(p) in shared]
        if mine:
            said.value = Later(_numbers(max(mine, key=torch.Tensor.numel)))
            self.leaving.append(said)

    def _replicated(self) -> dict[int, Any]:
        """Return the ids of parameters under DDP, with their model: a job may wrap it late."""
        if self._shared or (self._shared is not None and self._looks > 3):
            return self._shared
        self._looks += 1
        self._shared = {
            id(parameter): weakref.ref(thing)
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
            numbers = Numbers(said.made, said.asked, said.reduced, tuple(said.value.numbers))
            store.set(_key(said, rank), json.dumps(numbers))
            if rank == 0:
                self._open.append((said, numbers))
        self.leaving = waiting
        del self._open[:-_SLOTS]

    def _compare(self, store: Any, *, is_over: bool = False) -> None:
        """Read the other ranks' numbers, where they are all there."""
        ranks = range(1, torch.distributed.get_world_size())
        left = []
        for said, mine in self._open:
            keys = [_key(said, rank) for rank in ranks]
            if not store.check(keys):
                left.append((said, mine))
                continue
            everybody = {0: mine}
            for rank, text in zip(ranks, store.multi_get(keys), strict=True):
                made, asked, reduced, weights = json.loads(text)
                everybody[rank] = Numbers(made, asked, reduced, tuple(weights))
            # An older one is still in somebody's slot, or we have yet to get where somebody is.
            is_early = any(each.made < mine.made for each in everybody.values())
            is_ahead = any(each.reduced > self._reduced for each in everybody.values())
            if is_early or (is_ahead and not is_over):
                left.append((said, mine))
                continue
            self._judge(said, everybody)
        self._open = left

    def _judge(self, said: _Sum, everybody: dict[int, Numbers]) -> None:
        same = {rank: each for rank, each in everybody.items() if each.made == said.made}
        apart = apart_after(same, lambda then: self._made(said.optimizer, then))
        if apart is not None:
            self._show(said.optimizer, apart, said.place)

    def _show(self, optimizer: str, apart: Apart, place: Place | None) -> None:
        count = float(len(apart.ranks))
        self._gauges.show(
            _QUANTITY, optimizer, count, unit="ranks", subject=apart.says, place=place
        )

    def _made(self, optimizer: str, reduced: int) -> int | None:
        """Return the updates that this rank had made before the next gradient was averaged."""
        made = [made for then, made in self._past.get(optimizer, ()) if then <= reduced]
        return made[-1] if made else None


def is_round(made: int) -> bool:
    """Say whether the ranks are compared after this many updates.

    >>> [made for made in range(100) if is_round(made)]
    [1, 2, 4, 8, 16, 32, 64, 96]
    """
    return made > 0 and (made % EVERY == 0 or (made < EVERY and made & (made - 1) == 0))


def _key(said: _Sum, rank: int) -> str:
    # The same slot on every rank: rounds after the first ones are EVERY updates apart.
    slot = said.made.bit_length() if said.made < EVERY else said.made // EVERY % _SLOTS + _SLOTS
    return f"instep/{said.optimizer}/{slot}/{rank}"


def _is_plain(model: DistributedDataParallel) -> bool:
    """Say whether a model is kept equal on all ranks: hooks may do something else on purpose."""
    if getattr(model, "_comm_hooks", None):
        return False
    size: int = model.process_group.size()
    return size == torch.distributed.get_world_size()


def _join_of(model: DistributedDataParallel) -> Any:
    return vars(model).get("_join_config")  # there is no public name for being in `join`


def _store() -> Any:
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return None
    if distributed.get_world_size() < 2:
        return None
    return distributed.distributed_c10d._get_default_store()  # noqa: SLF001  # there is no other way
