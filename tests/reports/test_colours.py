import pytest

from instep.reports import wants_colour
from instep.reports.colours import Paint

NO, FORCE = {"NO_COLOR": "1"}, {"FORCE_COLOR": "1"}


@pytest.mark.parametrize(
    ("choice", "is_terminal", "environ", "expected"),
    [
        ("auto", True, {}, True),
        ("auto", False, {}, False),
        ("auto", True, NO, False),
        ("auto", True, {"NO_COLOR": ""}, True),  # set but empty means nothing
        ("auto", False, FORCE, True),
        ("auto", False, {"FORCE_COLOR": ""}, False),
        ("auto", True, NO | FORCE, False),
        ("auto", True, {"TERM": "dumb"}, False),
        ("auto", False, FORCE | {"TERM": "dumb"}, True),
        ("always", False, NO, True),
        ("never", True, FORCE, False),
    ],
)
def test_who_decides(choice, is_terminal, environ, expected):
    assert wants_colour(choice, is_terminal=is_terminal, environ=environ) is expected


def test_paint():
    assert Paint(is_on=True)("error", "bad") == "\x1b[1;31mbad\x1b[0m"
    assert Paint(is_on=True)("error", "") == ""
    assert Paint(is_on=False)("error", "bad") == "bad"
