import math

from hypothesis import given
from hypothesis import strategies as st

from instep.reports.scales import averaged, scale_of, short, span, thinned

numbers = st.floats() | st.sampled_from([0.0, 5e-324, 1.7e308, -1.7e308, 1e16, 1e16 + 2])
lines = st.lists(numbers, max_size=60)


@given(lines, st.booleans(), st.booleans())
def test_every_value_has_a_place_on_its_axis(values, may_be_log, from_zero):
    scale = scale_of(values, may_be_log=may_be_log, from_zero=from_zero)
    assert scale.low < scale.high
    for value in values:
        if math.isfinite(value) and 1e-200 < abs(value) < 1e200:
            assert -1e-9 <= scale.at(value) <= 1 + 1e-9
    ticks = scale.ticks()
    assert len(ticks) <= 12
    assert ticks == sorted(ticks)
    assert all(-1e-6 <= scale.at(tick) <= 1 + 1e-6 for tick in ticks)


def test_values_far_apart_get_powers_of_ten():
    assert scale_of([1.0, 51.0], may_be_log=True).is_log
    assert not scale_of([1.0, 49.0], may_be_log=True).is_log
    assert not scale_of([-1.0, 1000.0], may_be_log=True).is_log
    assert scale_of([0.0, 1e-5, 1.0], may_be_log=True).is_log
    assert scale_of([0.0, 1e-5, 1.0], may_be_log=True).at(0.0) == 0.0


@given(st.lists(numbers, max_size=40))
def test_thinning_keeps_the_extremes_and_what_is_not_finite(values):
    points = [(number, 0.0, value) for number, value in enumerate(values)]
    kept = thinned(points, 4)
    assert len(kept) <= 8
    assert kept == sorted(kept, key=lambda point: point[0])
    finite = [value for value in values if math.isfinite(value)]
    shown = [value for _, _, value in kept]
    if finite:
        assert min(finite) in shown
    if len(finite) < len(values):
        assert not all(map(math.isfinite, shown))
    elif finite:
        assert max(finite) in shown


def test_a_single_spike_survives():
    points = [(n, 0.0, 1.0) for n in range(100_000)]
    points[77_777] = (77_777, 0.0, 1e9)
    assert points[77_777] in thinned(points)


@given(st.lists(numbers, max_size=300))
def test_means_lie_between_the_values(values):
    finite = [value for value in values if math.isfinite(value)]
    for _, _, mean in averaged([(n, 0.0, value) for n, value in enumerate(values)], 7):
        assert min(finite) - 1e-9 * abs(min(finite)) <= mean
        assert mean <= max(finite) + 1e-9 * abs(max(finite))


def test_words():
    assert [short(value) for value in (1e-3, 9e-4, 99_999.0, -1e5, math.inf)] == [
        "0.001", "9e-4", "99,999", "-1e5", "inf",
    ]  # fmt: skip
    assert [span(s) for s in (0.0, 0.5, 59.0, 61.0, 7200.0, 360_000.0)] == [
        "0 ms", "500 ms", "59 s", "1 min 1 s", "2 h 0 min", "100 h 0 min",
    ]  # fmt: skip
