"""The one kernel of a close: factor, clip, update, and the narrow copy of the weights.

It reads gradients, parameters and moments once and writes parameters and moments once; gradients
are left as they are. The factor of a window (normalisation, unscaling, clipping) is applied on the
way, from the norm that is still on the device: nothing is read back in between. A norm that is not
finite leaves everything as it was.
"""

from __future__ import annotations

import triton
import triton.language as tl

# What torch.nn.utils.clip_grad_norm_ guards its division with.
GUARD = tl.constexpr(1e-6)


@triton.jit
def update(  # noqa: PLR0915, PLR0917 -- a kernel's arguments are its pointers
    parameters,  # noqa: ANN001 -- pointers have no Python type
    gradients,  # noqa: ANN001
    first,  # noqa: ANN001
    second,  # noqa: ANN001
    narrow,  # noqa: ANN001
    owners,  # noqa: ANN001
    rows,  # noqa: ANN001
    norm,  # noqa: ANN001
    factors,  # noqa: ANN001
    KIND: tl.constexpr,  # noqa: N803 -- Triton's custom for constants
    MOMENTS: tl.constexpr,  # noqa: N803
    NARROW: tl.constexpr,  # noqa: N803
    COLUMNS: tl.constexpr,  # noqa: N803
    WIDE: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
) -> None:
    """Update one block of a flat buffer; `rows[owner]` holds its parameter's numbers.

    `factors` are the window's factor, the largest norm and the largest value; 0 for no limit. A
    sign of 0 in a row leaves the parameter alone.
    """
    block = tl.program_id(0).to(tl.int64)
    row = rows + tl.load(owners + block) * COLUMNS
    sign = tl.load(row)
    length = tl.load(norm).to(WIDE)
    # inf - inf and NaN - NaN are both NaN, which equals nothing.
    is_finite = (length - length) == 0.0
    if (sign != 0.0) & is_finite:
        scale = tl.load(factors).to(WIDE)
        limit = tl.load(factors + 1).to(WIDE)
        if limit > 0.0:
            ratio = limit / (length * tl.abs(scale) + GUARD)
            scale = scale * tl.minimum(ratio, 1.0)
        a = tl.load(row + 1)
        b = tl.load(row + 2)
        c = tl.load(row + 3)
        d = tl.load(row + 4)
        e = tl.load(row + 5)
        decay = tl.load(row + 6)
        shrink = tl.load(row + 7)
        rest_c = tl.load(row + 8)
        rest_d = tl.load(row + 9)
        index = block * BLOCK + tl.arange(0, BLOCK)
        g = tl.load(gradients + index).to(WIDE) * scale
        bound = tl.load(factors + 2).to(WIDE)
        if bound > 0.0:
            g = tl.minimum(tl.maximum(g, -bound), bound)
        g = g * sign
        p = tl.load(parameters + index).to(WIDE)
        if KIND == 0:
            g = g + decay * p
            m = tl.load(first + index).to(WIDE)
            v = tl.load(second + index).to(WIDE)
            m = m + (g - m) * rest_c
            v = v * d + rest_d * g * g
            p = p * shrink - a * (m / (tl.sqrt(v) / b + e))
            tl.store(first + index, m)
            tl.store(second + index, v)
        elif KIND == 1:
            g = g + decay * p
            if MOMENTS > 0:
                m = tl.load(first + index).to(WIDE) * b + g * c
                tl.store(first + index, m)
                # Nesterov: g + momentum · m; else m.
                g = tl.where(e > 0.0, m, g + d * m)
            p = p - a * g
        else:
            m = tl.load(first + index).to(WIDE)
            u = m * c + g * rest_c
            turn = tl.where(u > 0.0, 1.0, tl.where(u < 0.0, -1.0, 0.0))
            p = p * shrink - a * turn
            tl.store(first + index, m * d + g * rest_d)
        tl.store(parameters + index, p)
        if NARROW:
            tl.store(narrow + index, p)
