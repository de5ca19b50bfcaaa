"""Moments: the first and the latest are kept, and the others are counted."""

from instep.trace import Step
from instep.watching import series
from instep.watching.series import MOST_FIRST, MOST_LAST, Series


def test_every_moment_is_kept_or_counted():
    taken, event = Series(), Step("o")
    for number in range(1, MOST_FIRST + MOST_LAST + 1001):
        taken.moment(event)
        if number in {1, series.MOST_OPENED, MOST_FIRST - 1, MOST_FIRST + 7}:
            assert len(taken.first) == min(number, MOST_FIRST)
            assert len(taken.latest) == max(0, number - MOST_FIRST)
    assert (len(taken.first), len(taken.latest), taken.left_out) == (MOST_FIRST, MOST_LAST, 1000)
    times = [time for time, _ in (*taken.first, *taken.latest)]
    assert times == sorted(times)
    assert times[0] >= 0
