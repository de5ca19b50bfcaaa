"""Calls that can be made again: with the same random numbers, buffers and autocast, and no trace.

A second forward of the same piece must draw the same dropout masks and start from the same buffers
(the vector of a spectral norm), and the run goes on after it as if it had not happened.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn.modules.batchnorm import _NormBase

from instep.engine import rng

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from torch import Tensor, nn

Place = tuple["nn.Module", str]
"""A module, and the name of one of its buffers."""


class Kept:
    """Copies of a model's buffers, and which of them have changed since."""

    def __init__(
        self, models: Iterable[nn.Module], leave_out: Collection[nn.Module] = frozenset()
    ) -> None:
        self._before: dict[Place, tuple[Tensor, int, Tensor]] = {}
        for module in {m: None for model in models for m in model.modules() if m not in leave_out}:
            for name, buffer in module.named_buffers(recurse=False):
                version = buffer._version  # noqa: SLF001 -- torch's own counter
                self._before[module, name] = buffer, version, buffer.detach().clone()

    def changed(self) -> list[Place]:
        """Return the buffers that were written or replaced.

        The kernels behind running statistics write without counting, so that those of a
        normalisation layer in training mode are taken as written.
        """
        return [
            (module, name)
            for (module, name), (buffer, version, _) in self._before.items()
            if module._buffers.get(name) is not buffer  # noqa: SLF001 -- where torch keeps them
            or buffer._version != version  # noqa: SLF001
            or (isinstance(module, _NormBase) and module.training)
        ]

    def copy_of(self, place: Place) -> Tensor:
        """Return what was in a buffer."""
        return self._before[place][2]

    def put_back(self) -> None:
        """Undo every change, in the tensors that were there."""
        for place in self.changed():
            module, name = place
            buffer, _, copy = self._before[place]
            with torch.no_grad():
                buffer.copy_(copy)
            module._buffers[name] = buffer  # noqa: SLF001


@dataclass(frozen=True, slots=True)
class _Moment:
    """What a call found: random states, and the buffers that had changed by then."""

    random: rng.RandomState
    buffers: dict[Place, Tensor]


class Replay:
    """A sequence of calls, each remembered by what it found, to be made again."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        self._kept: Kept | None = Kept(models)
        self._moments: list[_Moment] = []
        self._first: dict[Place, Tensor] = {}
        kinds = {p.device.type for model in models for p in model.parameters()} | {"cpu"}
        self._autocast = [
            (kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind))
            for kind in sorted(kinds)
        ]
        self._is_cached = torch.is_autocast_cache_enabled()

    def remember(self) -> None:
        """Note what the next call will find."""
        kept = self._kept
        found: dict[Place, Tensor] = {}
        if kept is not None and self._moments:
            for module, name in kept.changed():
                found[module, name] = module._buffers[name].detach().clone()  # type: ignore[union-attr] # noqa: SLF001
        self._moments.append(_Moment(rng.full_state(), found))

    def end(self) -> None:
        """Note that the last call was made; buffers that none has changed are let go."""
        if self._kept is not None:
            self._first = {place: self._kept.copy_of(place) for place in self._kept.changed()}
            self._kept = None

    @contextlib.contextmanager
    def under_way(self) -> Iterator[None]:
        """Surround all repetitions; afterwards buffers and random states are as they were found."""
        random = rng.full_state()
        held = {place: place[0]._buffers[place[1]] for place in self._first}  # noqa: SLF001
        try:
            yield
        finally:
            for (module, name), buffer in held.items():
                module._buffers[name] = buffer  # noqa: SLF001
            rng.restore(random)

    @contextlib.contextmanager
    def again(self, index: int) -> Iterator[None]:
        """Surround the repetition of one call: it finds what the call found."""
        moment = self._moments[index]
        with contextlib.ExitStack() as regions:
            for kind, enabled, dtype in self._autocast:
                regions.enter_context(
                    torch.autocast(
                        kind, dtype=dtype, enabled=enabled, cache_enabled=self._is_cached
                    )
                )
            rng.restore(moment.random)
            for (module, name), first in self._first.items():
                # Other tensors, so that nothing in the graph around sees its own change.
                start = moment.buffers.get((module, name), first)
                module._buffers[name] = start.clone()  # noqa: SLF001
            yield
