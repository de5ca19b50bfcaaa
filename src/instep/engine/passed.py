"""What a rank has passed over of a stream: numbers that are the same wherever the stream is.

Of a stream each rank draws everything and keeps every so many, so that all of them see all items
and can be asked whether these were the same. Two things are told apart: what names a sample (a
label, an identity, a file), and what it looks like (an image, a sound, tokens), which is often
changed at random on the way, by each rank in another way. Names that agree, and are not all the
same, say that the samples do; looks count only where there are no such names.

The numbers are noted after 1, 2, 4, 8, ... items and at the end. Workers of a loader write them
into memory that they share with it; nothing is sent from here.
"""

from __future__ import annotations

import ctypes
import itertools
import zlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import get_worker_info

from instep.engine.dealt import is_held

if TYPE_CHECKING:
    from collections.abc import Iterable
    from weakref import ReferenceType

    from instep.engine.dealt import Listener

SHORT, FEW = 64, 4
"""Characters of a text, and numbers in a row, that name a sample; more may be a part of it."""
LOOKED_AT = 1024
"""Elements that are looked at of what has more, about."""
WHOLE = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
PARTS, DEPTH = 64, 8
"""Of what holds many parts, or parts inside of parts, the first are looked at."""

_LEVELS = 48
_CLAIMED, _TOTAL, _BAG, _WHOLE, _FIRST = range(5)
_BITS = 28
_MASK = (1 << _BITS) - 1
_EPOCHS = 127


class Numbers(NamedTuple):
    """Two numbers of items in their order."""

    names: int
    """Of what names them; 0 if nothing does, or the same name is on all of them."""
    looks: int
    """Of all that was looked at."""


class End(NamedTuple):
    """A stream that was passed over to its end."""

    items: int
    numbers: Numbers
    bag: int
    """A number of the items in any order."""


class Passed:
    """What was passed over in the last epoch that was begun."""

    def __init__(self, workers: int, ranks: int) -> None:
        self.workers = workers
        self.ranks = ranks
        """How many take turns."""
        # A row for each worker, and before them one with the epoch, that all read and one writes.
        self._board = torch.zeros(max(workers, 1) + 1, _FIRST + _LEVELS, dtype=torch.int64)
        if workers:
            self._board.share_memory_()
        self._begun = 0
        self._before: tuple[int, dict[int, Numbers], End | None] = (0, {}, None)
        """The epoch before this one, and what there was to say of it."""
        self._rests = False
        self.held_by: ReferenceType[Listener] | None = None
        """The loop that draws what is looked at."""

    def __getstate__(self) -> dict[str, Any]:
        # Workers have a copy, of which they need the board alone.
        return {**vars(self), "held_by": None, "_before": (0, {}, None)}

    @property
    def epoch(self) -> int:
        """A number of the epoch that is looked at; 0: none is."""
        return int(self._board[0, 0])

    def begin(self) -> int:
        """Begin an epoch and return its number: the next pass over the stream is looked at.

        Not where a loop is in the middle of one, and this is a look into the loader besides: 0.
        """
        if self._rests or is_held(self.held_by):
            return 0
        self._before = (self.epoch, self.levels(), self.end())
        self._begun = self._begun % _EPOCHS + 1
        self._board[0, 0] = self._begun
        return self._begun

    def rest(self) -> None:
        """Begin an epoch that is not looked at, whoever begins one, until `wake`."""
        self._board[0, 0] = 0
        self._rests = True

    def wake(self) -> None:
        """Look at the next epoch again."""
        self._rests = False

    def seen(self, epoch: int) -> tuple[dict[int, Numbers], End | None]:
        """Return what there is to say of an epoch: of this one, or the one before."""
        if epoch and epoch == self.epoch:
            return self.levels(), self.end()
        return self._before[1:] if epoch and epoch == self._before[0] else ({}, None)

    def over(self, items: Iterable[Any], first: int, step: int) -> Iterator[Any]:
        """Yield the items from the first on that are this rank's, and look at all of them.

        One pass in an epoch is looked at: who looks into the loader besides does not count.
        """
        worker = get_worker_info()
        row = 1 + (0 if worker is None else worker.id)
        epoch = self.epoch
        if not epoch or row >= len(self._board) or int(self._board[row, _CLAIMED]) == epoch:
            return itertools.islice(items, first, None, step)
        self._board[row, _CLAIMED] = epoch
        return _Noted(iter(items), first, step, self._board[row], epoch << (2 * _BITS))

    def was_cut(self, epoch: int) -> bool:
        """Whether a pass of this epoch has begun, here or in a worker, and not come to its end."""
        _, *rows = self._board.tolist()
        return any(row[_CLAIMED] == epoch and _of(row, _WHOLE, epoch) is None for row in rows)

    def levels(self) -> dict[int, Numbers]:
        """Return the numbers after 2 ** level items of each worker, as far as all have come."""
        epoch, *rows = self._board.tolist()
        found: dict[int, Numbers] = {}
        for level in range(_LEVELS):
            # A worker that has ended before stays what it was.
            reached = [_of(row, _FIRST + level, epoch[0]) for row in rows]
            known = [r or _of(row, _WHOLE, epoch[0]) for r, row in zip(reached, rows, strict=True)]
            if not any(reached) or any(each is None for each in known):
                break
            found[level] = _joined([each for each in known if each is not None])
        return found

    def end(self) -> End | None:
        """Return the numbers of the whole stream, if it was passed over to its end."""
        epoch, *rows = self._board.tolist()
        known = [each for row in rows if (each := _of(row, _WHOLE, epoch[0])) is not None]
        if len(known) < len(rows):
            return None
        # Read again: a worker may have come to its end while they were read, from left to right.
        totals, bags = self._board[1:, [_TOTAL, _BAG]].T.tolist()
        return End(sum(totals), _joined(known), sum(bags))


class _Noted(Iterator[Any]):
    """Every so many of some items, and numbers of all that were passed over.

    No generator: where an item raises, the next one may still come, as without this.
    """

    def __init__(
        self, items: Iterator[Any], first: int, step: int, row: Tensor, epoch: int
    ) -> None:
        self._items, self._row, self._epoch = items, row, epoch
        self._next, self._step = first, step
        self._names = self._looks = self._bag = self._passed = self._first_name = 0
        self._varies = False
        self._is_told = get_worker_info() is None
        """Whether who draws hears of an error for certain: those of workers may be lost."""
        self._failed = False

    def __next__(self) -> Any:
        try:
            for item in self._items:
                self._failed = False
                self._note(numbers_of(item))
                if self._passed - 1 == self._next:
                    self._next += self._step
                    return item
        except Exception:
            self._failed = not self._is_told
            raise
        if self._failed:
            # A generator that has raised has no more; its stream may have.
            raise StopIteration
        self._row[_TOTAL], self._row[_BAG] = self._passed, self._bag
        # The last: who finds it finds the others, too.
        self._row[_WHOLE] = self._numbers()
        raise StopIteration

    def _note(self, seen: Numbers) -> None:
        if seen.names:
            self._names = zlib.crc32(seen.names.to_bytes(4, "little"), self._names)
        if not self._passed:
            self._first_name = seen.names
        self._varies = self._varies or seen.names != self._first_name
        self._looks = zlib.crc32(seen.looks.to_bytes(4, "little"), self._looks)
        self._bag += seen.looks
        self._passed += 1
        level = self._passed.bit_length()
        if self._passed & (self._passed - 1) == 0 and level <= _LEVELS:
            self._row[_FIRST + level - 1] = self._numbers()

    def _numbers(self) -> int:
        return self._epoch | _packed(self._names if self._varies else 0, self._looks)


def _packed(names: int, looks: int) -> int:
    # A name is never 0, which stands for none.
    return (((names & _MASK) or int(names != 0)) << _BITS) | (looks & _MASK)


def _of(row: list[int], place: int, epoch: int) -> Numbers | None:
    value = row[place]
    if not value or value >> (2 * _BITS) != epoch:
        return None
    return Numbers((value >> _BITS) & _MASK, value & _MASK)


def _joined(numbers: list[Numbers]) -> Numbers:
    if len(numbers) == 1:
        return numbers[0]
    names, looks = (zlib.crc32(repr(each).encode()) & _MASK for each in zip(*numbers, strict=True))
    return Numbers(names if any(each.names for each in numbers) else 0, looks)


# -- one item ------------------------------------------------------------------------------------


def numbers_of(item: Any) -> Numbers:
    """Return two numbers of an item: of what names it, and of all that is looked at.

    >>> image = torch.rand(3, 8, 8)
    >>> numbers_of((image, 7)).names == numbers_of((image + 1, 7)).names
    True
    >>> numbers_of((image, 7)).looks == numbers_of((image + 1, 7)).looks
    False
    """
    look = _Look()
    look.at(item, 0)
    looks = zlib.crc32(look.names.to_bytes(4, "little"), look.looks)
    return Numbers(look.names or int(look.has_names), looks)


class _Look:
    """A walk through the parts of one item."""

    def __init__(self) -> None:
        self.names = self.looks = 0
        self.has_names = False

    def at(self, part: Any, depth: int) -> None:
        if isinstance(part, int):
            self._name(repr(part).encode())
        elif isinstance(part, float | complex):
            self._look(repr(part).encode())
        elif isinstance(part, str):
            # Where files are may differ between machines, their names do not.
            self._text(part.rsplit("/", 1)[-1][:LOOKED_AT].encode(errors="replace"))
        elif isinstance(part, bytes | bytearray):
            self._text(bytes(part[:LOOKED_AT]))
        elif isinstance(part, Tensor):
            self._tensor(part)
        elif isinstance(part, list | tuple | Mapping) and depth < DEPTH:
            self._look(f"{type(part).__name__} {len(part)}".encode())
            inside = part.values() if isinstance(part, Mapping) else part
            if len(part) > FEW and all(isinstance(inner, int | float) for inner in inside):
                self._look(repr(list(itertools.islice(inside, LOOKED_AT))).encode())
                return
            for inner in itertools.islice(inside, PARTS):
                self.at(inner, depth + 1)
        elif type(part).__module__ == "numpy" and hasattr(part, "__array__"):
            self._array(part)
        else:
            self._look(type(part).__name__.encode())

    def _name(self, text: bytes) -> None:
        self.has_names = True
        self.names = zlib.crc32(text, self.names)

    def _text(self, text: bytes) -> None:
        if len(text) <= SHORT:
            self._name(text)
        else:
            self._look(text)

    def _look(self, text: bytes) -> None:
        self.looks = zlib.crc32(text, self.looks)

    def _array(self, array: Any) -> None:
        is_name = array.size == 1 and array.dtype.kind in "biu"
        self._look(f"{array.dtype}{'' if is_name else array.shape}".encode())
        if array.dtype.hasobject:
            return
        if is_name:
            self._name(array.tobytes())
        else:
            self._look(array.flat[:: max(array.size // LOOKED_AT, 1)].tobytes())

    def _tensor(self, tensor: Tensor) -> None:
        if tensor.is_nested:
            self._look(b"nested")
            return
        is_name = tensor.numel() == 1 and tensor.dtype in WHOLE
        self._look(f"{tensor.dtype}{'' if is_name else tuple(tensor.shape)}".encode())
        is_here = tensor.device.type == "cpu" and tensor.layout is torch.strided
        if not is_here or tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
            return
        some = _some(tensor.detach())
        text = ctypes.string_at(some.data_ptr(), some.nbytes) if some.numel() else b""
        if is_name:
            self._name(text)
        else:
            self._look(text)


def _some(tensor: Tensor) -> Tensor:
    """Return a few of a tensor's elements, from all over it, in one piece."""
    while not tensor.is_contiguous() and tensor.dim() > 1 and tensor.numel() > FEW:
        tensor = tensor[len(tensor) // 2]
    return tensor.flatten()[:: max(tensor.numel() // LOOKED_AT, 1)].contiguous()
