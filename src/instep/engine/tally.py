"""What the backwards of one term declared: losses, counts and weights, until the close reads them.

Numbers that live on a device stay there. Nothing is read, multiplied or added per micro-batch; the
close fetches everything at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from instep.engine.arithmetic import Part, reference
from instep.engine.gradients import to_host

if TYPE_CHECKING:
    from collections.abc import Sequence

Number = float | Tensor


# One backward as it was declared: loss, items, weight, and whether the loss was a sum already. A
# plain tuple, because one is made per micro-batch.
Declared = tuple[Number, Number, float, bool]


# A reference this many times off still leaves fp16 most of its range.
FAR = 16

_NARROW = {torch.float16, torch.bfloat16}


class Tally:
    """The declarations of one term in one window, and the reference of its gradients."""

    __slots__ = ("declared", "is_fixed", "is_on_host", "reference")

    def __init__(self, known_reference: float | None, *, is_fixed: bool = False) -> None:
        self.declared: list[Declared] = []
        self.reference: Number | None = known_reference
        self.is_on_host = True
        """Whether everything declared is a number already."""
        self.is_fixed = is_fixed
        """Whether the reference is the window's own total, or in use already."""

    @property
    def is_begun(self) -> bool:
        """Whether a reference was chosen."""
        return self.reference is not None

    def declare(self, loss: Number, items: Number, weight: float, *, is_sum: bool) -> None:
        """Add what a backward stands for."""
        self.declared.append((loss, items, weight, is_sum))
        if isinstance(loss, Tensor) or isinstance(items, Tensor):
            self.is_on_host = False

    def share(self, items: Number, dtype: torch.dtype, *, is_sum: bool) -> Number:
        """Return items / reference, choosing the reference at the first count that is not zero.

        `dtype` is that of the loss the share will weigh: a count on a device is as exact as that.
        """
        known = self.reference
        if isinstance(known, Tensor) or (known is None and isinstance(items, Tensor)):
            return self._first_share(items, is_sum=is_sum)
        if not self.is_fixed:
            self.is_fixed = True
            # The usual count of the window before, unless this one is of quite another size.
            if not isinstance(items, Tensor) and (
                known is None or not known / FAR <= items <= known * FAR
            ):
                known = self.reference = reference(items)
        assert known is not None  # noqa: S101 -- a count on a device without one went above
        if is_sum:
            return 1.0 / known
        if isinstance(items, Tensor):
            # An int tensor times a number is of torch's default type, usually float32: as exact as
            # a float32 loss, and one kernel.
            if dtype is torch.float64 or {items.dtype, torch.get_default_dtype()} & _NARROW:
                items = items.to(_widest(items))
            return items * (1.0 / known)
        return items / known

    def _first_share(self, items: Number, *, is_sum: bool) -> Tensor:
        """Choose the reference on the device: in a stepper's first window, by counts there."""
        known = self.reference
        if isinstance(known, Tensor):
            count = torch.as_tensor(items, dtype=known.dtype, device=known.device)
        else:
            assert isinstance(items, Tensor)  # noqa: S101 -- the caller looked
            count = items.to(_widest(items))
            known = torch.zeros_like(count)
        nearest = torch.exp2(torch.round(torch.log2(count)))
        known = torch.where((known > 0) | (count <= 0), known, nearest)
        self.reference = known
        return (torch.ones_like(count) if is_sum else count) / torch.where(known > 0, known, 1.0)


def _widest(items: Tensor) -> torch.dtype:
    """Return the type in which a count is exact; mps has no float64, so no loss needs it there."""
    return torch.float32 if items.device.type == "mps" else torch.float64


class Reading(NamedTuple):
    """Everything a close needs to know, on the host."""

    parts: dict[str, list[Part]]
    references: dict[str, float]
    extra: list[float]


def read(tallies: dict[str, Tally], extra: Sequence[Tensor]) -> Reading:
    """Fetch all tallies, and some more scalars, with one sync per device that holds any of them."""
    numbers = _listed(tallies, extra)
    return _sorted(tallies, _fetched(numbers), len(extra))


class Numbers:
    """The same, begun now and read later: what is on a device travels while it goes on working."""

    def __init__(self, tallies: dict[str, Tally], extra: Sequence[Tensor]) -> None:
        self._tallies = tallies
        self._extra = len(extra)
        self._values = _listed(tallies, extra)
        self._sent: list[tuple[list[int], Tensor]] = []
        self._event: torch.cuda.Event | None = None
        kinds: dict[tuple[torch.device, torch.dtype], list[int]] = {}
        for index, value in enumerate(self._values):
            if isinstance(value, Tensor) and value.is_cuda:
                kinds.setdefault((value.device, value.dtype), []).append(index)
        for indices in kinds.values():
            stacked = torch.stack([self._values[i] for i in indices])  # type: ignore[misc]
            host = torch.empty(stacked.shape, dtype=stacked.dtype, pin_memory=True)
            self._sent.append((indices, host.copy_(stacked, non_blocking=True)))
        if self._sent:
            self._event = torch.cuda.Event()
            self._event.record()

    def read(self) -> Reading:
        """Wait until they have arrived."""
        if self._event is not None:
            self._event.synchronize()
        for indices, host in self._sent:
            for index, number in zip(indices, host.tolist(), strict=True):
                self._values[index] = float(number)
        return _sorted(self._tallies, _fetched(self._values), self._extra)


def _listed(tallies: dict[str, Tally], extra: Sequence[Tensor]) -> list[Number]:
    numbers: list[Number] = [*extra]
    for tally in tallies.values():
        if not tally.is_on_host:
            for loss, items, _, _ in tally.declared:
                numbers += (loss, items)
        numbers.append(0.0 if tally.reference is None else tally.reference)
    return numbers


def _sorted(tallies: dict[str, Tally], known: list[float], extra: int) -> Reading:
    fetched = iter(known[extra:])
    parts: dict[str, list[Part]] = {}
    references: dict[str, float] = {}
    for name, tally in tallies.items():
        if tally.is_on_host:
            parts[name] = [Part(*row) for row in tally.declared]  # type: ignore[arg-type]
        else:
            parts[name] = [
                Part(next(fetched), next(fetched), weight, is_sum)
                for _, _, weight, is_sum in tally.declared
            ]
        references[name] = next(fetched) or 1.0
    return Reading(parts, references, known[:extra])


def _fetched(values: Sequence[Number]) -> list[float]:
    """Return the same values with every tensor among them read, all at once."""
    tensors = [value for value in values if isinstance(value, Tensor)]
    fetched = iter(to_host(tensors))
    return [next(fetched) if isinstance(value, Tensor) else value for value in values]
