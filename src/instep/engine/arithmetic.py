"""The arithmetic of a window: plain numbers in, plain numbers out.

Each backward declares how many items its mean loss stands for. The gradient of a window is
Σ lossᵢ·itemsᵢ / Σ itemsᵢ, and the total is known only at the close. So a backward is weighted by
items / reference, and the close multiplies by reference / total. The reference is a power of two
near the usual count: multiplying by it changes no mantissa, so the bits of the result do not depend
on which power it was, and fp16 gradients stay in range.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

# torch.nn.utils.clip_grad_norm_ guards its division with the same constant; ours must agree with
# it.
CLIP_GUARD = 1e-6
# Beyond it, not every whole number is a float any more; nobody has that many items.
LARGEST_COUNT = 2.0**53
# Counts given ahead and counts used may differ by the rounding of float counts, not by more.
AGREEMENT = 1e-12


def reference(count: float) -> float:
    """Return the power of two nearest to a positive count, by exponent.

    >>> reference(4), reference(5), reference(7), reference(0.3)
    (4.0, 4.0, 8.0, 0.25)
    """
    return math.ldexp(1.0, round(math.log2(count)))


class Part(NamedTuple):
    """What one backward added to a term; `is_sum`: its loss was a sum over its items already."""

    loss: float
    items: float
    weight: float = 1.0
    is_sum: bool = False


class TermTotal(NamedTuple):
    """A term of the loss over the whole window."""

    loss: float
    """Its mean over the items of the window, without weight; NaN if there are none."""
    items: float
    weighted: float
    """What it adds to the loss of the window: the same with the weights of its backwards."""


def total(parts: Iterable[Part]) -> TermTotal:
    """Add up the parts of a term; a part without items counts for nothing, whatever its loss.

    >>> total([Part(loss=2.0, items=3), Part(loss=6.0, items=1)])
    TermTotal(loss=3.0, items=4.0, weighted=3.0)
    >>> total([Part(loss=math.nan, items=0), Part(loss=6.0, items=1, weight=0.5)])
    TermTotal(loss=6.0, items=1.0, weighted=3.0)
    """
    plain = weighted = counted = 0.0
    for loss, items, weight, is_sum in parts:
        if items > 0:
            summed = loss if is_sum else loss * items
            plain += summed
            weighted += weight * summed
            counted += items
    if not counted:
        return TermTotal(math.nan, 0.0, 0.0)
    return TermTotal(plain / counted, counted, weighted / counted)


def normaliser(reference_items: float, items: float) -> float:
    """Return what a gradient buffer is multiplied by so that it becomes a mean over its items."""
    return reference_items / items if items > 0 else 0.0


def shared_normaliser(factors: Iterable[float]) -> float | None:
    """Return the one factor of a buffer that several terms share, or None if they disagree.

    >>> shared_normaliser([1.0, 1.0]), shared_normaliser([1.0, 0.75]), shared_normaliser([])
    (1.0, None, 1.0)
    """
    distinct = list(factors)
    if not distinct:
        return 1.0
    first = distinct[0]
    agree = all(math.isclose(first, other, rel_tol=AGREEMENT) for other in distinct)
    return first if agree else None


def clip_factor(norm: float, limit: float | None) -> float:
    """Return the factor that brings a gradient of this norm under the limit.

    >>> clip_factor(0.5, 1.0), clip_factor(0.5, None)
    (1.0, 1.0)
    >>> round(clip_factor(4.0, 1.0), 5)
    0.25
    """
    if limit is None:
        return 1.0
    return min(1.0, limit / (norm + CLIP_GUARD))
