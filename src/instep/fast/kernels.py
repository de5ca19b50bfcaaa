"""The one kernel of a close: factor, clip, update, and the narrow copy of the weights.

It reads gradients, parameters and moments once and writes parameters and moments once; gradients
are left as they are. The factor of a window (normalisation, unscaling, clipping) is applied on the
way, from the norm that is still on the device: nothing is read back in between. A norm that is not
finite leaves everything as it was.

Terms with denominators of their own have gradients of their own. They are added up on the way, each
with its share, here and in the norm: nothing is written back for them either.
"""

from __future__ import annotations

import triton
import triton.language as tl

# What torch.nn.utils.clip_grad_norm_ guards its division with.
GUARD = tl.constexpr(1e-6)
# Elements whose square might not fit into float32 are made smaller before, and counted apart.
LARGE = tl.constexpr(2.0**60)
SMALLER = tl.constexpr(2.0**-80)


# ruff: noqa: ANN001, ANN202, N803, PLR0917 -- Triton's language: pointers, constants in capitals


@triton.jit
def _adam(p, g, first, second, row, WIDE: tl.constexpr):
    """Adam and AdamW: one of the row's weight decays is 0, or 1 for the factor."""
    beta2 = tl.load(row + 4)
    g = g + tl.load(row + 6) * p
    m = tl.load(first).to(WIDE)
    v = tl.load(second).to(WIDE)
    m = m + (g - m) * tl.load(row + 8)
    v = v * beta2 + tl.load(row + 9) * g * g
    tl.store(first, m)
    tl.store(second, v)
    size = tl.sqrt(v) / tl.load(row + 2) + tl.load(row + 5)
    return p * tl.load(row + 7) - tl.load(row + 1) * (m / size)


@triton.jit
def _sgd(p, g, first, row, WIDE: tl.constexpr, MOMENTS: tl.constexpr):
    """SGD: with a momentum buffer if there is one, by Nesterov if the row says so."""
    g = g + tl.load(row + 6) * p
    if MOMENTS > 0:
        m = tl.load(first).to(WIDE) * tl.load(row + 2) + g * tl.load(row + 3)
        tl.store(first, m)
        g = tl.where(tl.load(row + 5) > 0.0, m, g + tl.load(row + 4) * m)
    return p - tl.load(row + 1) * g


@triton.jit
def _lion(p, g, first, row, WIDE: tl.constexpr):
    """Lion: the sign of a mean, and another mean to remember."""
    m = tl.load(first).to(WIDE)
    u = m * tl.load(row + 3) + g * tl.load(row + 8)
    turn = tl.where(u > 0.0, 1.0, tl.where(u < 0.0, -1.0, 0.0))
    tl.store(first, m * tl.load(row + 4) + g * tl.load(row + 9))
    return p * tl.load(row + 7) - tl.load(row + 1) * turn


@triton.jit
def _summed(
    index, gradients, second, third, fourth, shares, TERMS: tl.constexpr, WIDE: tl.constexpr
):
    """Return the gradient: a buffer's as it is, or the sum of terms, each with its share."""
    g = tl.load(gradients + index).to(WIDE)
    if TERMS > 0:
        g = g * tl.load(shares).to(WIDE)
    if TERMS > 1:
        g = g + tl.load(second + index).to(WIDE) * tl.load(shares + 1).to(WIDE)
    if TERMS > 2:
        g = g + tl.load(third + index).to(WIDE) * tl.load(shares + 2).to(WIDE)
    if TERMS > 3:
        g = g + tl.load(fourth + index).to(WIDE) * tl.load(shares + 3).to(WIDE)
    return g


@triton.jit
def squares(
    gradients,
    second,
    third,
    fourth,
    shares,
    sums,
    blocks,
    TERMS: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Add up the squares of every so-manieth block of a gradient, as many as there are programs.

    Those of large elements are in the second half of the sums, made smaller.
    """
    program = tl.program_id(0)
    block = program.to(tl.int64)
    total = tl.zeros([BLOCK], WIDE)
    large = tl.zeros([BLOCK], WIDE)
    while block < blocks:
        index = block * BLOCK + tl.arange(0, BLOCK)
        g = _summed(index, gradients, second, third, fourth, shares, TERMS, WIDE)
        is_large = tl.abs(g) > LARGE
        some = tl.where(is_large, g * SMALLER, 0.0)
        g = tl.where(is_large, 0.0, g)
        total += g * g
        large += some * some
        block += tl.num_programs(0)
    tl.store(sums + program, tl.sum(total))
    tl.store(sums + tl.num_programs(0) + program, tl.sum(large))


@triton.jit
def update(
    parameters,
    gradients,
    more1,
    more2,
    more3,
    first,
    second,
    narrow,
    owners,
    rows,
    norm,
    factors,
    KIND: tl.constexpr,
    MOMENTS: tl.constexpr,
    TERMS: tl.constexpr,
    NARROW: tl.constexpr,
    COLUMNS: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Update one block of a flat buffer; `rows[owner]` holds its parameter's numbers.

    `factors` are the window's factor, the largest norm and the largest value (0 for no limit), and
    the share of each term if there are several. A sign of 0 in a row leaves the parameter alone.
    """
    block = tl.program_id(0).to(tl.int64)
    row = rows + tl.load(owners + block) * COLUMNS
    sign = tl.load(row)
    length = tl.load(norm).to(WIDE)
    # inf - inf and NaN - NaN are both NaN, which equals nothing.
    is_finite = (length - length) == 0.0
    if (sign != 0.0) & is_finite:
        scale = tl.load(factors).to(WIDE)
        limit, bound = tl.load(factors + 1).to(WIDE), tl.load(factors + 2).to(WIDE)
        if limit > 0.0:
            scale = scale * tl.minimum(limit / (length * tl.abs(scale) + GUARD), 1.0)
        index = block * BLOCK + tl.arange(0, BLOCK)
        g = _summed(index, gradients, more1, more2, more3, factors + 3, TERMS, WIDE) * scale
        if bound > 0.0:
            g = tl.minimum(tl.maximum(g, -bound), bound)
        g = g * sign
        p = tl.load(parameters + index).to(WIDE)
        if KIND == 0:
            p = _adam(p, g, first + index, second + index, row, WIDE)
        elif KIND == 1:
            p = _sgd(p, g, first + index, row, WIDE, MOMENTS)
        else:
            p = _lion(p, g, first + index, row, WIDE)
        tl.store(parameters + index, p)
        if NARROW:
            tl.store(narrow + index, p)


# -- the narrow copy, if somebody else has written to the parameters ----------------------------


@triton.jit(do_not_specialize=["turn"])
def compare(parameters, narrow, index, count, found, turn, limit, BLOCK: tl.constexpr) -> None:
    """Write the number of this turn if the copy of an element is farther off than by rounding."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    place = tl.load(index + at, mask=at < count, other=0)
    true = tl.load(parameters + place)
    kept = tl.load(narrow + place).to(tl.float32)
    is_near = (tl.abs(true - kept) <= tl.abs(true) * limit) | (true == kept)
    # What is not a number is near to nothing, and no news if both are.
    are_none = (true != true) & (kept != kept)  # noqa: PLR0124 -- only NaN is not itself
    if tl.max(tl.where(is_near | are_none, 0, 1), axis=0) > 0:
        tl.atomic_max(found, turn)


@triton.jit(do_not_specialize=["turn"])
def renew(parameters, narrow, length, found, turn, BLOCK: tl.constexpr) -> None:
    """Copy everything, if this turn has found a difference."""
    if tl.load(found) == turn:
        start = tl.program_id(0).to(tl.int64) * BLOCK
        while start < length:
            at = start + tl.arange(0, BLOCK)
            values = tl.load(parameters + at, mask=at < length, other=0.0)
            tl.store(narrow + at, values.to(tl.bfloat16), mask=at < length)
            start += tl.num_programs(0) * BLOCK
