"""What has to be the same on all ranks and is never sent: options, and what needs gradients.

Every rank makes the update by itself. One with another learning rate, or that has frozen a layer,
would train another model from then on without a word; so each says a short number of these.
"""

from __future__ import annotations

import zlib
from numbers import Real
from typing import TYPE_CHECKING, Any

from torch import Tensor

from instep.engine.gradients import parameters_of
from instep.engine.ranks.headers import agreed, ranks_that

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from instep.engine.lane import Lane
    from instep.engine.ranks.headers import Said

DIGITS = 6
FROZEN = "requires_grad"
_SCHEDULE = (
    " A schedule whose length is that of a sharded loader differs by rank: take it from the loader "
    "before shard() (instep explain schedulers)."
)
Rows = dict[str, list[Any]]


class Alike:
    """The numbers of one stepper's optimizers, made anew only when something has changed."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Rows, str]] = {}

    def of(self, lanes: Iterable[Lane]) -> str:
        """Return the numbers of these, in the order of `names_of`."""
        return "".join(map(self._of, lanes))

    def _of(self, lane: Lane) -> str:
        rows = _rows(lane)
        known = self._known.get(lane.name)
        if known is None or known[0] != rows:
            known = rows, "".join(_number(row) for row in (list(rows), *rows.values()))
            self._known[lane.name] = known
        return known[1]


def names_of(lanes: Iterable[Lane]) -> list[str]:
    """Return what the numbers of `Alike.of` belong to."""
    return [f"{name} of {lane.name!r}" for lane in lanes for name in ("options", *_rows(lane))]


def require_alike(heard: Sequence[Said], lanes: Sequence[Lane]) -> None:
    """Raise if a rank has said other numbers than the first; all of them name the same ranks."""
    first = heard[0].alike
    other = [said.alike != first for said in heard]
    if not any(other):
        return
    names = names_of(lanes)
    size = DIGITS * len(names)
    differing = [
        name
        for index, name in enumerate(names)
        if len({said.alike[DIGITS * index :][:DIGITS] for said in heard}) > 1
    ]
    if any(len(said.alike) != size for said in heard) or not differing:
        differing = [f"options of {lane.name!r}" for lane in lanes]
    is_rate = any(name.startswith("lr of ") for name in differing)
    raise agreed(
        f"{ranks_that(other)} and rank 0 differ in {', '.join(differing[:6])}.",
        why="every rank makes the update by itself, from the sum of all gradients: with other "
        "options, or other parameters that need gradients, the ranks would train different "
        "models. The window was thrown away.",
        fix="set the same on every rank, and freeze the same parameters; what is decided by a "
        "loss (ReduceLROnPlateau) needs that of all ranks, as window.loss is."
        f"{_SCHEDULE if is_rate else ''}",
        more="ranks",
    )


def _rows(lane: Lane) -> Rows:
    """Return what is compared, by name: one value for each group of each optimizer."""
    rows: Rows = {
        FROZEN: [p.requires_grad for p in parameters_of(lane.optimizers)],
        "clip_norm": [lane.clip_norm],
        "clip_value": [lane.clip_value],
    }
    for optimizer in lane.optimizers:
        # What else is in a group is the user's, and may be a rank's own.
        for name in optimizer.defaults:
            rows.setdefault(name, []).extend(
                _plain(group.get(name)) for group in optimizer.param_groups
            )
    return rows


def _plain(value: Any) -> Any:
    """Return an option as numbers and text; None for what is neither, or would have to be fetched.

    1 and 1.0 are the same here.
    """
    if value is None or type(value) is float:
        return value
    if isinstance(value, bool | int):
        return float(value)
    if isinstance(value, Tensor):
        return value.tolist() if value.device.type == "cpu" else None
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, list | tuple):
        return list(map(_plain, value))
    return value if isinstance(value, str) else None


def _number(row: Any) -> str:
    return f"{zlib.crc32(repr(row).encode()):08x}"[:DIGITS]
