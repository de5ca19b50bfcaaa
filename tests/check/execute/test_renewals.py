import ast

import pytest

from instep.check.execute.renewals import renewed


def of(body):
    return sorted(renewed(ast.parse(f"for i, x in enumerate(loader):\n{body}").body[0]))


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("  if i % 10 == 0:\n    a = 0", ["a"]),
        ("  if i % 10 == 0:\n    a, self.b = 0, []", ["a", "self.b"]),
        ("  if i % 10 == 0:\n    if log:\n      a = []", ["a"]),
        ("  if len(a) >= k:\n    a.clear()", ["a"]),
        ("  if i % 10 == 0:\n    a.append(0)", []),
        ("  if i % 10 == 0:\n    a += 1", []),
        ("  if i % 10 == 0:\n    a = a / 10", []),
        ("  if i % 10:\n    pass\n  else:\n    a = 0", []),
        ("  if i == 0:\n    a = 0", []),
        ("  if a is None:\n    a = 0", []),
        ("  a = 0", []),
    ],
)
def test_what_begins_anew(body, names):
    assert of(body) == names
