"""Gradients added up over ranks: every element once, in as few calls as memory allows.

Small gradients travel together in a bucket, large ones by themselves and in place, so that no
second copy of all gradients is ever made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from instep.engine.gradients import foreach_copy_
from instep.engine.ranks.gathering import gather_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

BUCKET = 2**26
"""Bytes that travel together."""
LARGE = 2**24
"""Bytes from which a gradient travels by itself."""


Key = tuple[torch.device, torch.dtype]


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """A parameter, and the type its gradient has on every rank that has one."""

    parameter: Tensor
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        """The size of its gradient."""
        return self.parameter.numel() * self.dtype.itemsize


def places_of(parameters: Sequence[Tensor], accumulate_in: torch.dtype | None) -> list[Place]:
    """Tell the types of gradients, also of those that are not there on this rank."""
    return [
        Place(
            p,
            accumulate_in
            if accumulate_in is not None
            and p.dtype.is_floating_point
            and p.itemsize < accumulate_in.itemsize
            else p.dtype,
        )
        for p in parameters
    ]


class Reduction:
    """The sum of some gradients over all ranks.

    Made before ranks agree, because it allocates: what fails here can still be told to the others.
    """

    def __init__(self, places: Sequence[Place], guess: Sequence[bool] = ()) -> None:
        """guess: which gradients there will be, as far as it is known."""
        self._places = places
        _reserve([p for p, is_held in zip(places, guess, strict=False) if is_held])
        self._missing: RuntimeError | None = None
        self._packed: dict[Key, list[Place]] = {}
        self._buffers: dict[Key, Tensor] = {}
        sizes: dict[Key, int] = {}
        for place in places:
            if _has_room(place):
                key = place.parameter.device, place.dtype
                small = place.parameter.numel() if place.nbytes < LARGE else 0
                sizes[key] = sizes.get(key, 0) + small
        for (device, dtype), size in sizes.items():
            bounded = min(size, BUCKET // dtype.itemsize)
            self._buffers[device, dtype] = torch.empty(bounded, dtype=dtype, device=device)

    def pack(self, holders: Sequence[bool]) -> None:
        """Fill the first bucket of each kind, before it is certain which gradients there are."""
        gradients = [place.parameter.grad for place in self._places]
        is_dense = all(g is None or not g.is_sparse for g in gradients)
        if len(holders) != len(self._places) or not is_dense:
            return
        if any(
            is_held and not _has_room(p) for p, is_held in zip(self._places, holders, strict=True)
        ):
            # Frozen since: what is packed would be longer than the buffer.
            return
        for key, places in self._small(holders).items():
            first = next(_buckets(places, self._buffers[key].numel()))
            _fill(first, self._buffers[key])
            self._packed[key] = first

    def run(self, holders: Sequence[bool], factor: float, group: Any) -> None:
        """Let every `.grad` be the sum over ranks, each multiplied by its own factor before."""
        import torch.distributed as dist  # noqa: PLC0415 -- in use already

        for place, is_held in zip(self._places, holders, strict=True):
            if is_held and place.nbytes >= LARGE:
                gradient = _alone(place)
                if factor != 1.0:
                    gradient.mul_(factor)
                dist.all_reduce(gradient, group=group)
                place.parameter.grad = gradient
        for key, places in self._small(holders).items():
            buffer = self._buffers[key]
            for bucket in _buckets(places, buffer.numel()):
                # The first one may have been packed already, by a guess that was right.
                if self._packed.pop(key, None) != bucket:
                    _fill(bucket, buffer)
                flat = buffer[: sum(place.parameter.numel() for place in bucket)]
                if factor != 1.0:
                    flat.mul_(factor)
                dist.all_reduce(flat, group=group)
                self._empty(bucket, buffer)
        if self._missing is not None:
            raise self._missing

    def _small(self, holders: Sequence[bool]) -> dict[Key, list[Place]]:
        """Return what travels in buckets, by device and type."""
        together: dict[Key, list[Place]] = {}
        for place, is_held in zip(self._places, holders, strict=True):
            if is_held and place.nbytes < LARGE:
                together.setdefault((place.parameter.device, place.dtype), []).append(place)
        return together

    @torch.no_grad()
    def _empty(self, bucket: Sequence[Place], buffer: Tensor) -> None:
        held = []
        for view, place in zip(_views(bucket, buffer), bucket, strict=True):
            parameter = place.parameter
            try:
                if parameter.grad is None:
                    parameter.grad = torch.empty_like(parameter, dtype=place.dtype)
            except RuntimeError as error:
                # The others are on their way to the next bucket: this comes after it.
                self._missing = error
                continue
            held.append((parameter.grad, view))
        if held:
            foreach_copy_([gradient for gradient, _ in held], [view for _, view in held])


def _reserve(places: Sequence[Place]) -> None:
    """Take the memory of large gradients that have to be made to be sent, and give it back at once.

    Who has too little finds out here, and not where the others are waiting for them.
    """
    sizes: dict[Key, int] = {}
    for place in places:
        gradient = place.parameter.grad
        if place.nbytes >= LARGE and (gradient is None or not gradient.is_contiguous()):
            key = place.parameter.device, place.dtype
            sizes[key] = sizes.get(key, 0) + place.parameter.numel()
    for (device, dtype), size in sizes.items():
        torch.empty(size, dtype=dtype, device=device)


def _has_room(place: Place) -> bool:
    """Whether there may be a gradient to send, so that the buffers count it."""
    return place.parameter.requires_grad or place.parameter.grad is not None


@torch.no_grad()
def _fill(bucket: Sequence[Place], buffer: Tensor) -> None:
    held = []
    for view, place in zip(_views(bucket, buffer), bucket, strict=True):
        gradient = place.parameter.grad
        if gradient is None:
            view.zero_()
        else:
            held.append((view, gradient))
    if held:
        foreach_copy_([view for view, _ in held], [gradient for _, gradient in held])


def _buckets(places: Sequence[Place], limit: int) -> Iterator[list[Place]]:
    """Cut a list into parts of so many elements at most; one by itself always fits."""
    waiting: list[Place] = []
    end = 0
    for place in places:
        size = place.parameter.numel()
        if waiting and end + size > limit:
            yield waiting
            waiting, end = [], 0
        waiting.append(place)
        end += size
    if waiting:
        yield waiting


def _views(bucket: Sequence[Place], buffer: Tensor) -> list[Tensor]:
    sizes = [place.parameter.numel() for place in bucket]
    parts = buffer[: sum(sizes)].split(sizes)
    return [part.view(place.parameter.shape) for place, part in zip(bucket, parts, strict=True)]


def _alone(place: Place) -> Tensor:
    """Return a gradient that can travel by itself: its elements in order, zeros if it has none."""
    gradient = place.parameter.grad
    if gradient is None:
        return torch.zeros(place.parameter.shape, dtype=place.dtype, device=place.parameter.device)
    return gradient.detach() if gradient.is_contiguous() else gradient.detach().contiguous()


def add_sparse(parameter: Tensor, factor: float, group: Any) -> None:
    """Let a sparse `.grad` be the sum over ranks: rows are gathered, each rank's as they are."""
    gradient = parameter.grad
    if gradient is None:
        none = parameter.detach().new_empty((0, *parameter.shape[1:]))
        rows = torch.empty((1, 0), dtype=torch.int64, device=parameter.device)
        gradient = torch.sparse_coo_tensor(rows, none, parameter.shape, check_invariants=False)
    if not gradient.is_sparse:
        gradient = gradient.to_sparse(1)
    gradient = gradient.coalesce()
    indices = torch.cat(gather_rows(gradient.indices().t().contiguous(), group))
    values = torch.cat(gather_rows(gradient.values() * factor, group))
    parameter.grad = torch.sparse_coo_tensor(
        indices.t(), values, parameter.shape, check_invariants=False
    ).coalesce()
