from __future__ import annotations

import pytest

from instep.rules.naming import means_same
from tests.rules.mends import Text

TWO = """\
import config
EVERY = 4
class T:
    def one(self, n):
        mark(self.n, n, EVERY, config.every)
    def two(self):
        there()
class U:
    def three(self, EVERY):
        elsewhere()
def outer(k, n):
    n = n or 1
    mine(k, n)
    def inner(k):
        deeper()
"""


@pytest.mark.parametrize(
    ("code", "at", "same"),
    [
        ("n", "mark(self.n, n, EVERY, config.every)", True),
        ("self.n", "there()", True),
        ("n", "there()", False),
        ("EVERY", "there()", True),
        ("config.every", "there()", True),
        ("self.n", "elsewhere()", False),
        ("EVERY", "elsewhere()", False),
        ("self.n", "mine(k, n)", False),
    ],
)
def test_an_expression_in_another_function(code, at, same):
    shown = Text(TWO)
    call = shown.source.call_at(shown.at("mark(self.n, n, EVERY, config.every)"))
    [written] = [arg for arg in call.args if shown.source.code(arg) == code]
    assert means_same(shown.source, written, shown.statement(at)) is same


def test_a_function_in_a_function():
    shown = Text(TWO)
    k, n = shown.source.call_at(shown.at("mine(k, n)")).args
    assert means_same(shown.source, n, shown.statement("deeper()"))
    assert not means_same(shown.source, k, shown.statement("deeper()"))
