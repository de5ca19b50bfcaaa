"""Gradients added up over ranks: every element once, in as few calls as memory allows.

Small gradients travel together in a bucket, large ones by themselves and in place, so that no
second copy of all gradients is ever made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from instep.engine.gradients import foreach_copy_
from instep.engine.ranks.gathering import gather_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

BUCKET = 2**26
"""Bytes that travel together."""
LARGE = 2**24
"""Bytes from which a gradient travels by itself."""


class Place(NamedTuple):
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

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = places
        self._missing: RuntimeError | None = None
        self._buffers: dict[tuple[torch.device, torch.dtype], Tensor] = {}
        sizes: dict[tuple[torch.device, torch.dtype], int] = {}
        for place in places:
            if place.parameter.requires_grad or place.parameter.grad is not None:
                key = place.parameter.device, place.dtype
                small = place.parameter.numel() if place.nbytes < LARGE else 0
                sizes[key] = sizes.get(key, 0) + small
        for (device, dtype), size in sizes.items():
            bounded = min(size, BUCKET // dtype.itemsize)
            self._buffers[device, dtype] = torch.empty(bounded, dtype=dtype, device=device)

    def run(self, holders: Sequence[bool], factor: float, group: Any) -> None:
        """Let every `.grad` be the sum over ranks, each multiplied by its own factor before."""
        import torch.distributed as dist  # noqa: PLC0415 -- in use already

        together: dict[tuple[torch.device, torch.dtype], list[Place]] = {}
        for place, is_held in zip(self._places, holders, strict=True):
            if not is_held:
                continue
            if place.nbytes >= LARGE:
                gradient = _alone(place)
                if factor != 1.0:
                    gradient.mul_(factor)
                dist.all_reduce(gradient, group=group)
                place.parameter.grad = gradient
            else:
                together.setdefault((place.parameter.device, place.dtype), []).append(place)
        for key, places in together.items():
            self._run_bucket_by_bucket(places, self._buffers[key], factor, group)
        if self._missing is not None:
            raise self._missing

    def _run_bucket_by_bucket(
        self, places: Sequence[Place], buffer: Tensor, factor: float, group: Any
    ) -> None:
        import torch.distributed as dist  # noqa: PLC0415

        waiting: list[Place] = []
        end = 0
        for place in places:
            size = place.parameter.numel()
            if end + size > buffer.numel():
                self._run_bucket(waiting, buffer[:end], factor, dist, group)
                waiting, end = [], 0
            waiting.append(place)
            end += size
        self._run_bucket(waiting, buffer[:end], factor, dist, group)

    @torch.no_grad()
    def _run_bucket(
        self, places: Sequence[Place], flat: Tensor, factor: float, dist: Any, group: Any
    ) -> None:
        parts = flat.split([place.parameter.numel() for place in places])
        views = [part.view(p.parameter.shape) for p, part in zip(places, parts, strict=True)]
        held = [
            (view, g)
            for view, p in zip(views, places, strict=True)
            if (g := p.parameter.grad) is not None
        ]
        for part, place in zip(parts, places, strict=True):
            if place.parameter.grad is None:
                part.zero_()
        if held:
            foreach_copy_([view for view, _ in held], [gradient for _, gradient in held])
        if factor != 1.0:
            flat.mul_(factor)
        dist.all_reduce(flat, group=group)
        for view, place in zip(views, places, strict=True):
            parameter = place.parameter
            if parameter.grad is not None:
                continue
            try:
                parameter.grad = torch.empty_like(parameter, dtype=place.dtype)
            except RuntimeError as error:
                # The others are on their way to the next bucket: this comes after it.
                self._missing = error
            else:
                held.append((view, parameter.grad))
        if held:
            foreach_copy_([gradient for _, gradient in held], [view for view, _ in held])


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
