from typing import get_args

import pytest

from instep.check.parsing import MAX_BYTES, MAX_DEPTH, MAX_LINES
from instep.check.problems import Kind, diagnose
from instep.errors import CheckError, InstepError
from instep.explain import page
from instep.trace import Place


@pytest.mark.parametrize("kind", get_args(Kind))
def test_every_kind_has_advice_and_is_on_the_page(kind):
    diagnostic = diagnose(kind, Place("a.py", 3, column=1), "it is odd.")
    lines = str(diagnostic).splitlines()
    assert lines[0] == "a.py:3:2: it is odd."
    assert [line.split()[0] for line in lines[1:]] == ["why:", "fix:", "more:"]
    assert f"**{kind}**" in page(diagnostic.more)


def test_the_page_gives_the_limits_that_hold():
    shown = page("not-checked")
    assert f"{MAX_LINES:,} lines or {MAX_BYTES >> 20} MiB" in shown
    assert f"{MAX_DEPTH} levels" in shown


def test_a_check_error_is_an_instep_error():
    assert issubclass(CheckError, InstepError)
