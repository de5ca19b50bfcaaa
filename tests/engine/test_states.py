from __future__ import annotations

import pytest

from instep.engine.states import ALLOWED, FIX, WHY, State, require
from instep.engine.window import Window
from instep.errors import WindowError


@pytest.mark.parametrize("state", State)
def test_every_state_is_in_every_table(state):
    assert state in ALLOWED
    assert WHY[state]
    assert FIX[state]


def test_every_call_of_the_table_exists():
    calls = set().union(*ALLOWED.values()) - {"iterate"}
    assert all(hasattr(Window, call) for call in calls)


@pytest.mark.parametrize("state", State)
def test_the_error_lists_what_fits(state):
    require(state, next(iter(ALLOWED[state])))
    with pytest.raises(WindowError) as caught:
        require(state, "explode")
    for call in ALLOWED[state]:
        assert call in str(caught.value)
