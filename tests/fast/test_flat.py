"""Gradients in several buffers: measured and applied as their weighted sum, and left as they are.

On machines without a CUDA device the kernels run in Triton's interpreter. What is expected is
computed in float64, by torch's own optimizers.
"""

from __future__ import annotations

import math

import pytest
import torch

from instep.engine.reference import relative_error
from instep.fast.flat import MOST_TERMS, Flat
from instep.fast.rules import rule_of

pytest.importorskip("triton")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIZES = (1, 1500, 3000)
# Of a count, of a loss scale, of a weight: as different as they are in one window.
SHARES = (1 / 3, 2.0**-16 / 7, -1.25, 640.0)

RULES = {
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.1),
    "Adam, L2, maximize": lambda p: torch.optim.Adam(p, lr=0.1, weight_decay=0.1, maximize=True),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.01),
    "SGD, Nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
}


def flat_of(dtype=torch.float32, sums_in=None, make=lambda p: torch.optim.SGD(p, lr=1.0)):
    members = [torch.nn.Parameter(torch.zeros(n, dtype=dtype, device=DEVICE)) for n in SIZES]
    optimizer = make(members)
    group, rule = optimizer.param_groups[0], rule_of(optimizer)
    return Flat(optimizer, group, members, rule=rule, gradient_type=sums_in or dtype)


def drawn(flat, count, seed=0, *, opposed=True):
    """Return that many gradients; each is of the size that its share makes ordinary."""
    generator = torch.Generator().manual_seed(seed)
    signs = [torch.randn(p.shape, generator=generator).sign().double() for p in flat.members]
    parts = []
    for share in SHARES[:count]:
        part = torch.zeros_like(flat.gradients)
        for view, sign in zip(flat.cut(part), signs, strict=True):
            values = torch.randn(view.shape, generator=generator, dtype=torch.float64)
            view.copy_((values if opposed else values.abs() * sign) / share)
        parts.append(part)
    return parts


def summed(flat, parts, shares=SHARES):
    """Return the gradient of every parameter in float64, from what the buffers hold."""
    total = sum(share * part.double() for share, part in zip(shares, parts, strict=False))
    return flat.cut(total)


def told(flat, *limits, shares=SHARES, count):
    numbers = [1.0, *(limits or (0.0, 0.0)), *shares[:count]]
    return torch.tensor(numbers, dtype=flat.wide, device=DEVICE)


def updated(flat, parts, numbers, active=(True, True, True)):
    norm = flat.norm(parts, numbers[3:].clone())
    flat.take_state()
    flat.write_rows(active)
    flat.launch(norm, numbers, parts)
    flat.note_update(active)
    return norm


COUNTS = range(1, MOST_TERMS + 1)
ERRORS = {torch.float32: 1e-6, torch.float64: 1e-14}


@pytest.mark.parametrize("dtype", ERRORS)
@pytest.mark.parametrize("count", COUNTS)
def test_the_sum_is_that_of_float64(count, dtype):
    flat = flat_of(dtype)
    parts = drawn(flat, count)
    expected = summed(flat, parts)
    length = torch.cat([one.flatten() for one in expected]).norm()
    norm = updated(flat, parts, told(flat, count=count))
    assert float(norm) == pytest.approx(float(length), rel=ERRORS[dtype])
    moved = [-p.detach().double() for p in flat.members]
    assert relative_error(moved, expected) < ERRORS[dtype]


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("count", COUNTS)
def test_every_rule_is_clipped_and_applied_to_the_sum(name, count):
    """Terms pull the same way: Adam makes a rest of two that cancel as large as any gradient."""
    flat = flat_of(make=RULES[name])
    plain = [torch.nn.Parameter(p.detach().double()) for p in flat.members]
    optimizer = RULES[name](plain)
    for seed in range(3):
        parts = drawn(flat, count, seed, opposed=False)
        updated(flat, parts, told(flat, 0.5, 0.0, count=count))
        for p, gradient in zip(plain, summed(flat, parts), strict=True):
            p.grad = gradient.clone()
        torch.nn.utils.clip_grad_norm_(plain, 0.5)
        optimizer.step()
    assert relative_error(flat.members, plain) < 1e-6


def test_values_are_clipped_after_they_are_added_up():
    flat = flat_of()
    parts = drawn(flat, 3)
    updated(flat, parts, told(flat, 0.0, 0.5, count=3))
    expected = [one.clamp(-0.5, 0.5) for one in summed(flat, parts)]
    assert relative_error([-p.detach().double() for p in flat.members], expected) < 1e-6


@pytest.mark.parametrize("count", [0, *COUNTS])
def test_nothing_is_written_to_gradients(count):
    flat = flat_of()
    parts = drawn(flat, count)
    flat.gradients.copy_(drawn(flat, 1)[0])
    held = [flat.gradients, *parts]
    before = [one.clone() for one in held]
    updated(flat, parts, told(flat, 0.5, 0.1, count=count))
    assert all(torch.equal(one, other) for one, other in zip(held, before, strict=True))


def test_a_share_of_one_has_the_bits_of_no_share():
    made = []
    for has_share in (False, True):
        flat = flat_of(make=RULES["AdamW"])
        for seed in range(3):
            flat.gradients.copy_(drawn(flat, 1, seed)[0])
            parts = [flat.gradients] if has_share else []
            shares = (1.0,) if has_share else ()
            updated(flat, parts, told(flat, 0.5, 0.0, shares=shares, count=len(shares)))
        made.append((flat.parameters, *flat.moments))
    assert all(torch.equal(one, other) for one, other in zip(*made, strict=True))


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # numpy's, in the interpreter
@pytest.mark.parametrize("at", range(3))
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_what_is_not_finite_in_any_buffer_moves_nothing(at, value):
    flat = flat_of(make=RULES["AdamW"])
    updated(flat, drawn(flat, 3), told(flat, count=3))
    before = [one.clone() for one in (flat.parameters, *flat.moments)]
    parts = drawn(flat, 3, seed=1)
    flat.cut(parts[at])[1][7] = value
    norm = updated(flat, parts, told(flat, 0.5, 0.1, count=3))
    assert not math.isfinite(norm)
    after = (flat.parameters, *flat.moments)
    assert all(torch.equal(one, other) for one, other in zip(after, before, strict=True))


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_infinities_of_two_buffers_do_not_cancel():
    flat = flat_of()
    parts = drawn(flat, 2)
    flat.cut(parts[0])[1][7], flat.cut(parts[1])[1][7] = math.inf, -math.inf
    assert not math.isfinite(updated(flat, parts, told(flat, count=2)))
    assert not flat.parameters.any()


def test_a_norm_whose_squares_do_not_fit():
    flat = flat_of()
    parts = [part * 1e30 for part in drawn(flat, 2)]
    expected = torch.cat([one.flatten() for one in summed(flat, parts)]).norm()
    assert float(flat.norm(parts, told(flat, count=2)[3:])) == pytest.approx(
        float(expected), rel=1e-6
    )


def test_a_parameter_that_no_term_has_reached_is_left_alone():
    flat = flat_of(make=RULES["AdamW"])
    parts = drawn(flat, 2)
    updated(flat, parts, told(flat, count=2), active=(True, False, True))
    assert [bool(p.any()) for p in flat.members] == [True, False, True]


@pytest.mark.parametrize("narrow", [torch.bfloat16, torch.float16])
def test_narrow_parameters_take_sums_in_float32(narrow):
    """What remains of two large gradients would be gone if either were rounded before."""
    flat = flat_of(narrow, sums_in=torch.float32)
    rest = drawn(flat, 1)[0] * SHARES[0]
    parts = [rest / 4 + 1000.0, torch.full_like(rest, 1000.0)]
    shares = (4.0, -4.0)
    expected = summed(flat, parts, shares)
    updated(flat, parts, told(flat, shares=shares, count=2))
    # The interpreter cuts bits off where a device rounds.
    step = torch.finfo(narrow).eps * (1.0 if DEVICE == "cpu" else 0.5)
    for p, gradient in zip(flat.members, expected, strict=True):
        off = (-p.detach().double() - gradient).abs()
        # Sums near 4000 in float32 know a gradient to 2**-12.
        assert (off <= step * gradient.abs() + 2.0**-11).all()
