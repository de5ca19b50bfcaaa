"""Data for several processes: every sample on exactly one rank, none twice and none left out.

`torch.utils.data.DistributedSampler` repeats samples, or drops some, until all ranks have the same
number. Windows need no such thing: ranks may have different numbers of batches and of items.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sized
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    IterDataPipe,
    MapDataPipe,
    Sampler,
    SequentialSampler,
    get_worker_info,
)

from instep.engine.dealt import Pass, line_of_here, serial_of, start_of
from instep.engine.orders import Orders, drawing_from, mixed, number_of, orders_of
from instep.engine.passed import Passed
from instep.errors import SetupError

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


def shard(
    loader: Iterable[Any],
    *,
    seed: int | None = None,
    rank: int | None = None,
    world: int | None = None,
    group: ProcessGroup | None = None,
) -> Iterable[Any]:
    """Return a loader of this rank's samples: each sample is on one rank, whatever their number.

    For a `DataLoader` a new one with the same dataset, batch size, workers and collation; ranks
    take turns sample by sample, or batch by batch where it has a batch sampler of its own. Shuffled
    orders are the same on all ranks, and new in every epoch. Of an `IterableDataset` and of any
    other iterable, each rank draws everything and keeps its own: it has to come in the same order
    everywhere, which a stepper's ranks look at while they train.

    `sampler.set_epoch(epoch)` (of `batch_sampler`, where batches are dealt out) makes the order one
    of seed and epoch, as that of `DistributedSampler` does; a sampler of yours that has it is told.

    seed: what orders are drawn from. None: the generator that the loader was given, seeded alike on
        every rank, whose orders are then those of the loader itself; or 0, where it has none.
    rank, world: this rank and how many there are, if not those of the process group.

    >>> import torch
    >>> loader = torch.utils.data.DataLoader(range(7), batch_size=2)
    >>> [batch.tolist() for batch in shard(loader, rank=0, world=2)]
    [[0, 2], [4, 6]]
    >>> [batch.tolist() for batch in shard(loader, rank=1, world=2)]
    [[1, 3], [5]]
    """
    turn = _turn_of(rank, world, group)
    if not isinstance(loader, DataLoader):
        return _Every(loader, turn)
    _refuse_sharded(loader)
    options: dict[str, Any] = {
        name: getattr(loader, name) for name in _OPTIONS if hasattr(loader, name)
    }
    if not options["num_workers"]:
        options["multiprocessing_context"] = None
    if isinstance(loader.dataset, IterDataPipe | MapDataPipe):
        _refuse_pipes(loader.dataset)
    if isinstance(loader.dataset, IterableDataset):
        stream = _Stream(loader.dataset, turn, options["num_workers"])
        return _Loader(stream, loader.batch_size, drop_last=loader.drop_last, **options)
    batches = loader.batch_sampler
    if batches is not None and (loader.batch_size is None or type(batches) is not BatchSampler):
        orders = orders_of(loader, batches, seed, turn)
        return _Loader(loader.dataset, batch_sampler=_Turns(batches, turn, orders), **options)
    return _Loader(
        loader.dataset,
        loader.batch_size,
        sampler=_Turns(loader.sampler, turn, orders_of(loader, loader.sampler, seed, turn)),
        drop_last=loader.drop_last,
        **options,
    )


def _refuse_pipes(dataset: object) -> None:
    raise SetupError(
        f"shard() of a {type(dataset).__name__}: it is a DataPipe.",
        why="DataPipes deal themselves out, to ranks and to workers (sharding_filter), and a "
        "DataLoader tells them only if it holds them itself.",
        fix="use the DataLoader as it is, with .sharding_filter() in the pipe.",
        more="ranks",
    )


# What a DataLoader was told, besides which samples to draw.
_OPTIONS = (
    "num_workers",
    "collate_fn",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
    "prefetch_factor",
    "persistent_workers",
    "in_order",
)

_Turn = tuple[int, int]
"""The number of this rank, and of all."""


class _Loader(DataLoader[Any]):
    """A loader that tells the loop which draws from it, also where something is in between."""

    instep_tells = True

    def __iter__(self) -> Any:
        dealer = self._dealer()
        dealer.settle()
        start = start_of(self, dealer)
        passed = getattr(dealer, "instep_passed", None)
        # Before workers begin, who are told in this way that this pass is looked at.
        epoch = 0 if passed is None else passed.begin()
        return Pass(super().__iter__(), dealer, epoch, start)

    def _dealer(self) -> _Dealt:
        places: tuple[Any, ...] = (self.dataset, self.sampler, self.batch_sampler)
        return next(place for place in places if isinstance(place, _Dealt))


class _Dealt:
    """What deals out samples to ranks: this rank's turn, and the epoch if it was told."""

    _turn: _Turn
    _inner: Any
    serial: int
    """A number of it, by where it was made: the same on all ranks."""
    epoch: int | None = None
    """The last one that `set_epoch` has told."""
    is_told = False
    """Whether the next order is that of this epoch."""

    @property
    def instep_dealt_to(self) -> int:
        """How many ranks take turns; looked for wherever a loader may have it."""
        return self._turn[1]

    def set_epoch(self, epoch: int) -> None:
        """Tell the epoch that is iterated next, also to what is dealt out, if that has this."""
        self.epoch, self.is_told = int(epoch), True
        for place in (self._inner, getattr(self._inner, "sampler", None)):
            tell = getattr(place, "set_epoch", None)
            if callable(tell):
                tell(epoch)

    def come_back(self, epoch: int | None, *, is_told: bool) -> None:
        """Be told what a saved run was, whatever was told since."""
        if epoch is not None:
            self.set_epoch(epoch)
        self.is_told = is_told

    def settle(self) -> None:
        """Be ready for the epoch that was told; what was put back before it does not count."""


class _Turns(_Dealt, Sampler[Any]):
    """Every so many of what another sampler yields, in an order that all ranks agree on."""

    def __init__(self, sampler: Iterable[Any], turn: _Turn, orders: Orders) -> None:
        self._inner, self._turn, self.serial = sampler, turn, orders.serial
        self._orders = orders
        # Where a saved position looks for what a new epoch depends on.
        self.generator = orders.generator
        self.begins_at = 0
        """How much of the next epoch is done already, by all ranks together."""
        self.deal: tuple[int, int] | None = None
        """A number of the last order that was drawn, the same on all ranks, and how long it is."""
        self.instep_given: int | None = None
        """How many this rank has of the last epoch that was begun."""

    def settle(self) -> None:
        """Seed the generator for the epoch that was told."""
        if self.is_told:
            self.generator.manual_seed(mixed(self._orders.seed, self.epoch))

    def __iter__(self) -> Iterator[Any]:
        # Once more: a loader has drawn a seed for its workers, maybe from the same generator.
        self.settle()
        self.is_told = False
        is_plain = type(self._inner) is SequentialSampler
        everything = range(len(self._inner)) if is_plain else self._order()
        # What is dealt out, and not what it is drawn from: ranks may have other data, too.
        self.deal = number_of(everything, self.begins_at), len(everything)
        rank, world = self._turn
        first, self.begins_at = self.begins_at + rank, 0
        part = everything[first::world]
        self.instep_given = len(part)
        yield from part

    def _order(self) -> list[Any]:
        """Draw the order of an epoch; the generator is another afterwards."""
        if not self._orders.follows:
            epoch = int(torch.randint(2**62, (), generator=self.generator))
            with drawing_from(epoch, self._inner):
                return list(self._inner)
        before = self.generator.get_state()
        # What a sampler draws elsewhere has to be the same on all ranks, too.
        with drawing_from(mixed(bytes(before.tolist())), self._inner, but=self.generator):
            drawn = list(self._inner)
        if torch.equal(self.generator.get_state(), before):
            torch.randint(2, (), generator=self.generator)
        return drawn

    def __len__(self) -> int:
        return _length(self._inner, self._turn)


class _Stream(_Dealt, IterableDataset[Any]):
    """Every so many of what a dataset yields; its workers share it as they did before."""

    def __init__(self, dataset: IterableDataset[Any], turn: _Turn, workers: int) -> None:
        self._inner, self._turn, self.serial = dataset, turn, serial_of(line_of_here())
        self.instep_passed = Passed(workers, turn[1]) if turn[1] > 1 else None
        """What it looks like on this rank; looked for wherever a loader may have it."""
        self._heard = 0
        self._board = torch.zeros(2, dtype=torch.int64)
        """How often it was told an epoch, and the last: workers that stay read it in their copy."""
        if workers:
            self._board.share_memory_()

    def set_epoch(self, epoch: int) -> None:
        """Tell the epoch that is iterated next, here and in workers that are there already."""
        super().set_epoch(epoch)
        if get_worker_info() is None:
            self._heard += 1
            self._board[1], self._board[0] = int(epoch), self._heard

    def __iter__(self) -> Iterator[Any]:
        times, epoch = self._board.tolist()
        if times != self._heard:
            self._heard = times
            super().set_epoch(epoch)
        if self.instep_passed is None:
            return itertools.islice(self._inner, self._turn[0], None, self._turn[1])
        return self.instep_passed.over(self._inner, self._turn[0], self._turn[1])

    def __len__(self) -> int:
        return _length(self._inner, self._turn)

    # Workers know their dataset by this one: what is theirs to read and set is the other's.

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or "_inner" not in vars(self):
            raise AttributeError(name)
        return getattr(self._inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN:
            object.__setattr__(self, name, value)
        else:
            setattr(self._inner, name, value)


_OWN = {"_inner", "_turn", "serial", "instep_passed", "epoch", "is_told", "_heard", "_board"}


class _Every(_Dealt):
    """Every so many of what an iterable yields."""

    instep_tells = True

    def __init__(self, items: Iterable[Any], turn: _Turn) -> None:
        self._inner, self._turn, self.serial = items, turn, serial_of(line_of_here())
        self.instep_passed = Passed(0, turn[1]) if turn[1] > 1 else None
        """What they look like on this rank; looked for wherever a loader may have it."""
        self.begins_at = 0
        """How much of the next epoch is done already, by all ranks together."""

    def __iter__(self) -> Iterator[Any]:
        rank, world = self._turn
        first, self.begins_at = self.begins_at + rank, 0
        if self.instep_passed is None:
            return itertools.islice(self._inner, first, None, world)
        epoch = self.instep_passed.begin()
        return Pass(self.instep_passed.over(self._inner, first, world), self, epoch)

    def __len__(self) -> int:
        return _length(self._inner, self._turn)


def _length(items: Iterable[Any], turn: _Turn) -> int:
    if not isinstance(items, Sized):
        message = f"{type(items).__name__} has no length, so its part has none"
        raise TypeError(message)
    return len(range(turn[0], len(items), turn[1]))


def _turn_of(rank: int | None, world: int | None, group: ProcessGroup | None) -> _Turn:
    import torch.distributed as dist  # noqa: PLC0415 -- only where it is asked for

    if (rank is None) != (world is None):
        raise SetupError(
            "shard() was given one of rank and world.",
            why="which samples are this rank's depends on both.",
            fix="pass both, or none: they are then those of the process group.",
            more="ranks",
        )
    if rank is None or world is None:
        running = dist.is_available() and dist.is_initialized()
        rank, world = (dist.get_rank(group), dist.get_world_size(group)) if running else (0, 1)
    if not 0 <= rank < world:
        raise SetupError(
            f"rank is {rank}, of {world}.",
            why="ranks are counted from 0.",
            fix="pass the number of this process in its group; leave group out if it is not in it.",
            more="ranks",
        )
    return rank, world


def _refuse_sharded(loader: DataLoader[Any]) -> None:
    batches = loader.batch_sampler
    for sampler in (loader.sampler, batches, getattr(batches, "sampler", None)):
        if isinstance(sampler, torch.utils.data.DistributedSampler | _Turns):
            raise SetupError(
                f"the loader has a {type(sampler).__name__.lstrip('_')} already.",
                why="its samples are those of one rank, so that the others' would be missing.",
                fix="pass a loader of all samples: shuffle=True instead of a DistributedSampler.",
                more="ranks",
            )
