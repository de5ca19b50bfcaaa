import ast
from pathlib import Path

import pytest

from instep.check.execute.wording import words

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "source",
    [
        "x",
        "self.args.steps",
        "1 .real",
        "'a'.join",
        "f()",
        "f(a, b.c, 'd', e=1, **g)",
        "f(*a)",
        "f(x for x in y)",
        "a[0]",
        "a[-1]",
        "a[1:2]",
        "a[b, c]",
        "a[(b, c)]",
        "a == 1",
        "a < b <= c",
        "a is not None and b",
        "(a == b) == c",
        "a == (b == c)",
        "not a",
        "a not in {1}",
        "i % 4 == 0",
        "1.5e300",
        "u'a'",
        "b'a'",
        "'é\\n'",
        "...",
        "1j",
        "(yield)",
        "(a := 1)",
        "(lambda: 0)()",
        "True is None",
        "f'{a}'",
        "a, b",
        "(await x).y",
    ],
)
def test_it_says_what_unparse_says(source):
    node = ast.parse(source).body[0].value
    assert words(node) == ast.unparse(node)


def test_whole_files():
    files = [*(ROOT / "src" / "instep" / "rules").glob("*.py"), *(ROOT / "examples").rglob("*.py")]
    assert len(files) > 80
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.expr) and not isinstance(node, ast.FormattedValue):
                assert words(node) == ast.unparse(node)
