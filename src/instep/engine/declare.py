"""What a backward declares: losses, counts and weights, read into rows before anything happens."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING

from torch import Tensor

from instep.engine.arithmetic import LARGEST_COUNT
from instep.engine.checks import count_of, host_weight, scalar_loss
from instep.errors import ItemsError, LossError

if TYPE_CHECKING:
    from collections.abc import Callable

LOSS = "loss"
"""The name of the term of a loss that has only one."""

Row = tuple[str, Tensor, float | Tensor, float]
"""Term, loss, items, weight."""


def rows_of(
    loss: object, items: object, weight: object, ahead: Callable[[str], float | None]
) -> list[Row]:
    """Return one row per term; where items is missing, `ahead(term)` is the count told ahead."""
    # What almost every call looks like, without the questions that all others are asked.
    is_usual = type(loss) is Tensor and type(items) is int and type(weight) is float
    if is_usual and 0 < items <= LARGEST_COUNT and isfinite(weight):  # type: ignore[operator, arg-type]
        return [(LOSS, scalar_loss(loss), items, weight)]  # type: ignore[list-item]
    if isinstance(loss, Mapping):
        return _rows_of_terms(loss, items, weight, ahead)
    if items is None:
        items = ahead(LOSS)
    if type(weight) is not float or not isfinite(weight):
        weight = host_weight(weight)
    return [_row(LOSS, loss, items, weight)]


def _rows_of_terms(
    losses: Mapping[str, object],
    items: object,
    weight: object,
    ahead: Callable[[str], float | None],
) -> list[Row]:
    if items is not None and not isinstance(items, Mapping):
        raise ItemsError(
            "a loss of several terms came with one count.",
            why="each named term is a mean over items of its own.",
            fix=f"pass items={{{', '.join(f'{name!r}: ...' for name in losses)}}}.",
            more="terms",
        )
    weights = weight if isinstance(weight, Mapping) else dict.fromkeys(losses, weight)
    unknown = ({*(items or {})} | {*weights}) - {*losses}
    if unknown or not losses:
        what = f"terms {sorted(unknown)} have a count or a weight but no loss."
        raise ItemsError(
            what if unknown else "the loss is a mapping without terms.",
            why=f"the terms of this loss are {sorted(losses)}.",
            fix="use the same names in loss, items and weight.",
            more="terms",
        )
    rows = []
    for name, loss in losses.items():
        count = ahead(name) if items is None else items.get(name)
        if count is None:
            raise ItemsError(
                f"term {name!r} has no items.",
                why="each named term is a mean over items of its own.",
                fix=f"pass items={{{', '.join(f'{name!r}: ...' for name in losses)}}}.",
                more="terms",
            )
        rows.append(_row(name, loss, count, host_weight(weights.get(name, 1.0))))
    return rows


def _row(term: str, loss: object, items: object, weight: float) -> Row:
    count = count_of(items)
    if not isinstance(count, Tensor) and count == 0 and isinstance(loss, Tensor):
        # Never backpropagated, so a placeholder without a graph will do.
        return term, loss, count, weight
    return term, scalar_loss(loss), count, weight


def is_sum(reduction: object) -> bool:
    """Whether a loss is the sum over its items rather than their mean."""
    if reduction not in ("mean", "sum"):
        raise LossError(
            f"reduction is {reduction!r}.",
            why='a loss is the "mean" over its items or their "sum".',
            fix='pass reduction="mean" or reduction="sum".',
            more="loss",
        )
    return reduction == "sum"
