import ast
import subprocess
import sys
import time
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.check import parsing
from instep.check.parsing import MAX_DEPTH, MAX_LINES, Fault, parse

BOMBS = {
    "unary": lambda n: "-" * n + "1",
    "not": lambda n: "not " * n + "1",
    "open": lambda n: "(" * n,
    "parentheses": lambda n: "(" * n + ")" * n,
    "braces": lambda n: "{1:" * n,
    "lists": lambda n: "[" * n + "]" * n,
    "attributes": lambda n: "a" + ".b" * n,
    "calls": lambda n: "a" + "()" * n,
    "sum": lambda n: "1" + "+1" * n,
    "power": lambda n: "a**" * n + "1",
    "lambda": lambda n: "lambda:" * n + "1",
    "choice": lambda n: "a if b else " * n + "1",
    "elif": lambda n: "if x:\n pass\n" + "elif x:\n pass\n" * n,
    "blocks": lambda n: "".join(" " * at + "if x:\n" for at in range(min(n, 900))),
    "pattern": lambda n: "match x:\n case " + "[" * n,
}


@pytest.fixture(params=[True, False], ids=["counted", "walked"])
def way(request, monkeypatch):
    """Both ways to find out how deep a tree is, where there are two."""
    monkeypatch.setattr(parsing, "_COUNTS_LEVELS", request.param and parsing._COUNTS_LEVELS)


@pytest.mark.parametrize("size", [MAX_DEPTH + 10, 3000, 100_000])
@pytest.mark.parametrize("bomb", BOMBS)
def test_recursion_bombs(bomb, size, way):
    fault = parse(BOMBS[bomb](size))
    assert isinstance(fault, Fault)
    assert fault.kind in {"too-deep", "too-large"}


def test_a_bomb_is_survived_in_a_process_with_a_high_recursion_limit():
    code = (
        "import sys; sys.setrecursionlimit(1_000_000)\n"
        "from instep.check.parsing import parse\n"
        "print(parse('-' * 5900 + '1').kind, parse('1' + '+1' * 300_000).kind)\n"
        "assert sys.getrecursionlimit() == 1_000_000"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["too-deep", "too-deep"])


def test_ordinary_depth_is_read(way):
    limit = sys.getrecursionlimit()
    assert isinstance(parse("x = " + " + ".join("abcdefgh" * 25)), ast.Module)
    assert isinstance(parse("if x:\n pass\n" + "elif x:\n pass\n" * 100), ast.Module)
    assert isinstance(
        parse("".join(" " * at + "if x:\n" for at in range(90)) + " " * 91 + "y"), ast.Module
    )
    assert sys.getrecursionlimit() == limit


def test_the_line_that_is_too_deep(way):
    assert parse("x = 1\n" * 6 + "y = 1" + "+1" * 400 + "\nz = 2\n").line == 7


def test_every_field_that_nodes_are_in_is_looked_at():
    kinds = {"expr", "stmt", "pattern", "arguments", "arg", "keyword", "withitem", "match_case"}
    kinds |= {"comprehension", "excepthandler", "alias"}
    for kind in vars(ast).values():
        signature = str(getattr(kind, "__doc__", "")).replace("\n", " ")
        if signature.startswith(f"{getattr(kind, '__name__', None)}("):
            parts = [part.split() for part in signature.partition("(")[2].rstrip(")").split(",")]
            fields = {field for word, field in parts if word.rstrip("*?") in kinds}
            assert fields <= {*parsing._below[kind]}, kind


@pytest.mark.parametrize(
    "source",
    [
        "print 'epoch', epoch",
        "print",
        "x = 1\nprint\nprint loss",
        "print >>sys.stderr, 'x' % loss, y\nprint x",
        "try:\n    pass\nexcept ValueError, e:\n    pass",
        "try:\n    pass\nexcept (A, B), e:\n    pass",
        "raise ValueError, 'no'",
        "exec 'x = 1'",
        "exec code in names",
        "n = 10L",
        "n = 0xFFL",
        "mode = 0755",
        "if a <> b: pass",
        "x = `y`",
        "x = ur'abc'",
        "f = lambda (a, b): a",
        "def f(a, (b, c)): pass",
        "if x:\n\tprint 'a'\n        print 'b'",
    ],
)
def test_python_2(source):
    try:
        ast.parse(source)
    except SyntaxError:
        assert parse(source).kind == "python-2"
    else:  # the one word `print` is an expression today
        assert isinstance(parse(source), ast.Module)


@pytest.mark.parametrize(
    ("source", "line", "column"),
    [
        ("x = 1\ny = (\n", 2, 4),
        ("def f(:\n    pass", 1, 6),
        ("é = 1\nß = é é", 2, 8),
        ("x = 1\n  y = 2", 2, None),
        ("print('a' 'b' c)", 1, None),
        ("print(f'{x y}')", 1, None),
        ("<<<<<<< HEAD\nx = 1\n", 1, 0),
        ("2021-02-07 12:05:07 loss", 1, None),
        ("05:07 loss", 1, None),
        ("07/05/2021", 1, None),
        ("for x in y\n    pass", 1, None),
        ("raise ValueError('a', )(", 1, None),
    ],
)
def test_syntax_errors_have_a_place(source, line, column):
    fault = parse(source)
    assert (fault.kind, fault.line) == ("syntax-error", line)
    assert column is None or fault.column == column


def test_null_bytes():
    fault = parse("x = 1\ny = '\0'")
    assert (fault.kind, fault.line) == ("null-bytes", 2)


def test_lone_surrogates():
    assert parse("x = '\ud800'").kind == "undecodable"


def test_100_000_lines_are_refused_at_once():
    source = "x = loss.backward()\n" * 100_000
    start = time.perf_counter()
    assert parse(source).kind == "too-large"
    assert time.perf_counter() - start < 0.5


def test_the_longest_file_that_is_read():
    assert isinstance(parse("x\n" * MAX_LINES), ast.Module)
    assert parse("x\n" * (MAX_LINES + 1)).kind == "too-large"


def test_no_warning_escapes():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(parse(r"x = '\d'; y = 1 is 1; assert (x, 'y')"), ast.Module)


def test_what_only_the_compiler_refuses_is_read():
    assert isinstance(parse("await x\nreturn 1\nbreak\nasync with y: pass"), ast.Module)


@given(st.text(alphabet="ab=+(){}[]:\n \t'\"\\#print,0;@é\0\ud800", max_size=60))
def test_no_text_raises(text):
    result = parse(text)
    if isinstance(result, Fault):
        assert 1 <= result.line <= text.count("\n") + 1
