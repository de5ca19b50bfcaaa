"""The bf16 copy of a flat buffer's parameters, and whether it is still true.

Every update writes it, and torch counts what others write in place. Nobody counts what is written
through `.data`, or by numpy. So a few elements of every parameter are compared when a window opens.
On a device the answer stays there: the copy is renewed before it is used, and the host hears of it
by the next opening. A write that changes few elements may go unseen, until the next update.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from instep.errors import four_lines, warn

if TYPE_CHECKING:
    from torch import Tensor

    from instep.fast.flat import Flat

SPOTS = 256
"""Elements of each parameter that are looked at: the first, the last, and evenly in between."""
LIMIT = 2.0**-8
"""How far rounding to bf16 takes a number at most, as a part of it."""
HOST_LIMIT = 2.0**-7
"""The same in Triton's interpreter, which cuts bits off."""
BLOCK = 1024
PROGRAMS = 2048


class Copy:
    """The narrow copy of one flat buffer."""

    def __init__(self, flat: Flat) -> None:
        self.views = flat.keep_narrow()
        self._flat = flat
        self._index = _spread(flat).to(flat.device)
        self._turn = self._told = 0
        is_cuda = flat.device.type == "cuda"
        self._limit = LIMIT if is_cuda else HOST_LIMIT
        self._found = torch.zeros(1, dtype=torch.int32, device=flat.device)
        self._heard = torch.zeros(1, dtype=torch.int32, pin_memory=is_cuda)

    def renew(self) -> None:
        """Bring it up to date, if somebody else has written to the parameters."""
        if self._flat.was_written:
            self._flat.renew_narrow()
        elif self._flat.device.type == "cuda":
            self._renew_there()
        elif self._differs():
            self._flat.renew_narrow()
            self._turn += 1
            self._tell(self._turn)

    def _differs(self) -> bool:
        narrow = self._flat.narrow
        assert narrow is not None  # noqa: S101 -- kept since this was made
        true, kept = self._flat.parameters[self._index], narrow[self._index].float()
        is_near = ((true - kept).abs() <= true.abs() * self._limit) | (true == kept)
        return not bool((is_near | (true.isnan() & kept.isnan())).all())

    def _renew_there(self) -> None:
        from instep.fast.kernels import compare, renew  # noqa: PLC0415 -- only where there is a device

        self._tell(int(self._heard[0]))
        self._turn += 1
        flat, count = self._flat, len(self._index)
        both = (flat.parameters, flat.narrow)
        compare[(-(-count // BLOCK),)](
            *both, self._index, count, self._found, self._turn, self._limit, BLOCK=BLOCK
        )
        renew[(min(PROGRAMS, -(-flat.layout.length // BLOCK)),)](
            *both, flat.layout.length, self._found, self._turn, BLOCK=BLOCK
        )
        self._heard.copy_(self._found, non_blocking=True)

    def _tell(self, heard: int) -> None:
        if heard and not self._told:
            self._told = heard
            text = four_lines(
                "weights were written through .data, or by numpy.",
                why="torch does not count such writes, and fused layers use a bf16 copy of their "
                "weights. A few elements of each weight have shown it, and the copy was made anew; "
                "a write that changes only few of them goes unseen until the next update. (Said "
                "once.)",
                fix="write in place under torch.no_grad(): p.clamp_(...), p.copy_(...).",
                more="fast",
            )
            warn(text)


def _spread(flat: Flat) -> Tensor:
    """Return where the elements are that are looked at."""
    places = []
    for member, offset in zip(flat.members, flat.layout.offsets, strict=True):
        size = member.numel()
        if size:
            spots = torch.linspace(0, size - 1, min(size, SPOTS), dtype=torch.float64)
            places.append(spots.round().long() + offset)
    return torch.cat(places) if places else torch.zeros(0, dtype=torch.long)
