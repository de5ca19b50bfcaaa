from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from instep.splits.fit import (
    PATIENCE,
    Fit,
    Line,
    balanced_sizes,
    line_through,
    next_probe,
    probe_sizes,
)
from instep.splits.sizes import MOST, Sizes


@given(st.integers(0, 500), st.integers(1, 2))
def test_probes_leave_room_for_what_follows(samples, smallest):
    probes = probe_sizes(samples, smallest)
    rest = samples - sum(probes)
    assert all(size >= smallest for size in probes)
    assert rest == 0 or rest >= smallest or not probes
    assert rest >= 0


@given(st.integers(0, 500), st.integers(1, 600))
def test_balanced_sizes(samples, largest):
    sizes = balanced_sizes(samples, largest)
    assert sum(sizes) == samples
    assert len(sizes) == -(-samples // largest)
    assert not sizes or max(sizes) - min(sizes) <= 1


@given(st.floats(0, 1e9), st.floats(1, 1e9), st.integers(1, 9), st.integers(1, 9))
def test_a_line_is_found_again(fixed, slope, few, more):
    true = Line(fixed, slope)
    points = [(few, true.needs(few)), (few + more, true.needs(few + more))]
    found = line_through(points)
    for samples in (1, few, 1000):
        assert abs(found.needs(samples) - true.needs(samples)) <= 1e-4 * true.needs(1000)


@given(st.floats(0, 1e6), st.floats(0, 1e4), st.floats(0, 1e9))
def test_what_fits_fits(fixed, slope, room):
    line = Line(fixed, slope)
    size = line.fits(room)
    assert size >= 1
    assert size == 1 or line.needs(size) <= room * (1 + 1e-9) + 1


@given(st.floats(1, 1e3), st.integers(3, 400), st.floats(0, 1e4), st.integers(1, 2))
def test_probes_double_while_they_fit(slope, samples, room, smallest):
    points = [(2, 2 * slope), (4, 4 * slope)]
    size = next_probe(points, room, samples, smallest)
    assert size == 0 or 4 < size <= min(8, samples)
    assert size == 0 or size * slope <= room * (1 + 1e-9)
    assert size == 0 or not 0 < samples - size < smallest


@given(st.integers(1, 200), st.integers(1, 200))
def test_sizes_come_down_to_what_fits_and_go_up_again(start, most):
    fit = Fit(start)
    failures = 0
    while fit.size > most:
        fit = fit.after_failure(fit.size)
        failures += 1
    assert failures <= 8
    sizes, attempts = [], 0
    for _ in range(40 * PATIENCE):
        if fit.size > most:
            fit = fit.after_failure(fit.size)
            attempts += 1
        sizes.append(fit.size)
        fit = fit.after_success()
    assert max(sizes) <= most
    # A size that does not fit is tried ever more rarely.
    assert attempts <= 8
    for _ in range(40 * 64 * PATIENCE):
        if fit.failed is None:
            break
        fit = fit.after_success()
    assert fit.size >= start or start == 1


def test_a_size_follows_the_memory_there_is():
    fit = Fit(16, Line(0.0, 10.0))
    assert fit.within(1000) is fit
    smaller = fit.within(85)
    assert (smaller.size, smaller.failed) == (8, 16)
    assert Fit(16).within(0) == Fit(16)
    assert Fit(1, Line(0.0, 10.0)).within(0).size == 1


def key(*shape, name="optimizer"):
    return (name, (("float32", shape),))


def test_sizes_by_shape():
    sizes = Sizes()
    sizes.keep(key(3, 100), Fit(8))
    assert sizes.find(key(3, 100)) == Fit(8)
    assert sizes.find(key(3, 60)) == Fit(8)  # not larger in any dimension
    for other in (key(3, 101), key(3, 40), key(3), key(3, 60, name="other"), key(4, 90)):
        assert sizes.find(other) is None
    sizes.keep(key(3, 120), Fit(6, Line(1.0, 2.0), failed=7))
    assert sizes.find(key(3, 90)) == Fit(8)
    loaded = Sizes()
    loaded.load_state_dict(sizes.state_dict())
    assert loaded.find(key(3, 120)) == Fit(6, Line(1.0, 2.0), failed=7)
    assert loaded.state_dict() == sizes.state_dict()
    for length in range(2 * MOST):
        sizes.keep(key(length), Fit(1))
    assert len(sizes.state_dict()) == MOST
    assert sizes.find(key(3, 100)) is None
    assert not isinstance(sizes.state_dict()[0][2][0], torch.Tensor)
