"""Weights that have drifted apart: somebody has changed them on one rank after the first close.

Every rank makes the update by itself, so that nothing puts them right again. What a rank says of
its weights is two numbers: the sum of their bits, which is the same or not, and the sum of their
sizes, which tells a change by hand from the last bits of another kind of device. They travel in
headers that are sent anyway: at the start of a loop, at the last close of one, at every hundredth
close and at a save.

That reads all weights. At every other close a rank looks at a few of one parameter, each time of
another: averaged weights, or a checkpoint that was loaded, differ everywhere. Where these differ,
all ranks tell of all their weights in one more round, before anything is added up.
"""

from __future__ import annotations

import math
import zlib
from typing import TYPE_CHECKING

import torch

from instep.engine.ranks.headers import agreed, ranks_that
from instep.engine.ranks.sharded import local
from instep.errors import four_lines, warn

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor

    from instep.engine.lane import Lane
    from instep.engine.ranks.headers import Said

EVERY = 100
"""Closes of an optimizer from one look at its weights to the next."""
FAR = 1e-5
"""What differs by more, of the sum of sizes, is no matter of rounding."""
PART = 2**22
"""Elements that are added up at a time: their bits are first copied into a wider type."""
FEW = 2**14
"""Elements that a glance is about, or as many as one row has."""

WHOLE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""The type in which the bits of a number of so many bytes are read."""
_WHY = (
    "every rank makes the update by itself, so that weights which differ once stay different: "
    "something has written them on one rank alone (averaged weights put in for an evaluation, a "
    "checkpoint loaded by hand)"
)


class Drift:
    """When the weights of one stepper's optimizers are looked at, and what follows."""

    def __init__(self, teams: Sequence[Sequence[int]] | None = None) -> None:
        """teams: ranks that hold the same weights, each a list; None: all of them do."""
        self._teams = teams
        self._closes: dict[str, int] = {}
        self._has_warned = False

    def has_closed(self, name: str) -> bool:
        """Whether the ranks have found the weights of this optimizer to be the same once."""
        return name in self._closes

    def note_close(self, name: str) -> None:
        """Note that the ranks have agreed on a close, all of them on the same one."""
        self._closes[name] = self._closes.get(name, 0) + 1

    def at_close(self, lane: Lane, *, is_last: bool) -> tuple[float, ...]:
        """Return what this rank says at a close; nothing at most of them (syncs, if it does).

        is_last: whether this rank's loader has ended.
        """
        if self._teams == []:
            return ()
        closes = self._closes.get(lane.name, 0)
        # The values of whole parameters at their first close are part of their fingerprint.
        is_first = not closes and self._teams is not None
        if is_first or (closes and (is_last or closes % EVERY == 0)):
            return self.all_of(lane)
        return ()

    def all_of(self, lane: Lane) -> tuple[float, ...]:
        """Return what this rank says of all weights of an optimizer (syncs)."""
        return weights_of([local(p) for o in lane.optimizers for p in _held(o)])

    def glance(self, lane: Lane) -> int:
        """Return a number of a few weights, before the update; 0 where nothing is told (syncs)."""
        closes = self._closes.get(lane.name, 0)
        held = [p for o in lane.optimizers for p in _held(o)]
        if not closes or self._has_warned or self._teams == [] or not held:
            return 0
        chosen = local(held[closes % len(held)]).detach()
        if chosen.ndim and len(chosen):
            chosen = chosen[: max(FEW * len(chosen) // max(chosen.numel(), 1), 1)]
        return 1 + zlib.crc32(repr(bits_of(chosen).tolist()).encode())

    def is_suspect(self, heard: Sequence[Said]) -> bool:
        """Whether glances differ between ranks that hold the same weights; the same on all."""
        return any(len({heard[rank].glance for rank in team}) > 1 for team in self._among(heard))

    def between(self, lanes: Iterable[Lane]) -> tuple[float, ...]:
        """Return what this rank says outside of a close (syncs)."""
        if self._teams == []:
            return ()
        closed = [lane for lane in lanes if self.has_closed(lane.name)]
        return weights_of([local(p) for lane in closed for o in lane.optimizers for p in _held(o)])

    def _among(self, heard: Sequence[Said]) -> Sequence[Sequence[int]]:
        return [range(len(heard))] if self._teams is None else self._teams

    def require_same(self, heard: Sequence[Said], doing: str) -> None:
        """Raise if weights are far apart; warn once if only their last bits are."""
        for team in self._among(heard):
            self._require_same(heard, team, doing)

    def _require_same(self, heard: Sequence[Said], team: Sequence[int], doing: str) -> None:
        told = [heard[rank].weights[0] for rank in team if heard[rank].weights]
        # Where some loaders have ended and others not, only some tell, and who is wrong is open.
        if len(told) < len(team) or len(set(told)) == 1:
            return
        # What most ranks have is taken for right.
        among = team[told.index(max(told, key=told.count))]
        first = heard[among].weights
        other = [rank in team and said.weights[0] != first[0] for rank, said in enumerate(heard)]
        far = [
            flag and _is_far(said.weights, first) for flag, said in zip(other, heard, strict=True)
        ]
        if any(far):
            raise agreed(
                f"{ranks_that(far)} and rank {among} have different weights.",
                why=f"{_WHY}. It was found at {doing}, which did not happen on any rank.",
                fix="change weights on all ranks alike, and put back what an evaluation has put "
                "in; start again from the last checkpoint.",
                more="ranks",
            )
        if not self._has_warned:
            self._has_warned = True
            text = four_lines(
                f"{ranks_that(other)} and rank {among} have slightly different weights.",
                why=f"{_WHY}, or the ranks run on different kinds of devices, which round "
                f"differently. It was found at {doing}. (Said once.)",
                fix="on devices of one kind, look for what writes weights; on several kinds, send "
                "those of rank 0 to all now and then.",
                more="ranks",
            )
            warn(text)


def _held(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _is_far(one: Sequence[float], other: Sequence[float]) -> bool:
    difference = abs(one[1] - other[1])
    return not math.isfinite(difference) or difference > FAR * max(abs(one[1]), abs(other[1]))


def weights_of(parameters: Sequence[Tensor]) -> tuple[float, ...]:
    """Return a number of their bits and the sum of their sizes; nothing for none (syncs)."""
    if not parameters:
        return ()
    bits = [bits_of(p) for p in parameters]
    sizes = [_size(p) for p in parameters]
    number = zlib.crc32(repr(fetched(bits)).encode())
    return float(number), math.fsum(each for each in fetched(sizes) if math.isfinite(each))


def bits_of(parameter: Tensor) -> Tensor:
    """Return the sum of a parameter's bits, which depends on no order and no rounding."""
    bits = parameter.detach().contiguous().flatten()
    if bits.is_complex():
        bits = torch.view_as_real(bits).flatten()
    parts = bits.view(WHOLE[bits.itemsize]).split(PART)
    return torch.stack([part.sum(dtype=torch.int64) for part in parts]).sum()


def _size(parameter: Tensor) -> Tensor:
    given = parameter.detach()
    if not (given.is_floating_point() or given.is_complex()):
        return torch.zeros((), device=given.device)
    kind = torch.float32 if given.itemsize < 4 else None
    norm: Tensor = torch.linalg.vector_norm(given, 1, dtype=kind)
    return norm


def fetched(numbers: Sequence[Tensor]) -> list[float]:
    """Read numbers from their devices, once for each device and type."""
    found: dict[int, float] = {}
    places = {(number.device, number.dtype) for number in numbers}
    for place in places:
        chosen = [i for i, n in enumerate(numbers) if (n.device, n.dtype) == place]
        found.update(zip(chosen, torch.stack([numbers[i] for i in chosen]).tolist(), strict=True))
    return [found[index] for index in range(len(numbers))]
