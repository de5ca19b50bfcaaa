"""The obvious answer: the loss of a whole window as one expression, for tests and for `verify`.

No weights, no references, no buffers: Σ lossᵢ·itemsᵢ / Σ itemsᵢ per term, written down as it reads.
It keeps every graph alive until the end, which is what the engine exists to avoid.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor


def window_loss(
    parts: Sequence[Mapping[str, tuple[Tensor, float]]],
    weights: Mapping[str, float] | None = None,
) -> Tensor | None:
    """Return the loss of a window from the (mean loss, items) of each part; None if it is empty.

    >>> import torch
    >>> window_loss([{"loss": (torch.tensor(2.0), 3)}, {"loss": (torch.tensor(6.0), 1)}])
    tensor(3.)
    """
    whole: Tensor | None = None
    term_loss: Tensor
    for term in dict.fromkeys(name for part in parts for name in part):
        counted = [part[term] for part in parts if term in part and part[term][1] > 0]
        if not counted:
            continue
        items = sum(count for _, count in counted)
        weighed = torch.stack([loss * count for loss, count in counted])
        term_loss = weighed.sum() / items * (weights or {}).get(term, 1.0)
        whole = term_loss if whole is None else whole + term_loss
    return whole


def relative_error(found: Sequence[Tensor | None], expected: Sequence[Tensor | None]) -> float:
    """Return ‖found − expected‖ / ‖expected‖ over all tensors; None counts as zeros."""
    difference = norm(
        [_minus(one, other) for one, other in zip(found, expected, strict=True)],
    )
    return _ratio(difference, norm(expected))


def relative_errors(
    found: Mapping[str, Tensor | None], expected: Mapping[str, Tensor | None]
) -> dict[str, float]:
    """Return the relative error of each named gradient.

    A gradient far smaller than the others is measured against a ten-thousandth of the norm of all:
    where the true gradient is zero (a bias before a normalisation), both sides are rounding only.
    """
    floor = norm(list(expected.values())) * 1e-4
    return {
        name: _ratio(norm([_minus(found[name], one)]), max(norm([one]), floor))
        for name, one in expected.items()
    }


def norm(tensors: Sequence[Tensor | None]) -> float:
    """Return the norm of all tensors together, in float64."""
    return math.hypot(*(float(_wide(t).norm()) for t in tensors if t is not None))


def _minus(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    if one is None or other is None:
        return one if other is None else other
    return _wide(one) - _wide(other)


def _wide(tensor: Tensor) -> Tensor:
    dense = tensor.detach().to_dense() if tensor.is_sparse else tensor.detach()
    return dense.to(torch.complex128 if dense.is_complex() else torch.float64)


def _ratio(difference: float, expected: float) -> float:
    if difference == 0.0:
        return 0.0
    return difference / expected if expected else math.inf
