import ast

import pytest

from instep.rules import spelling


def expression(code):
    return ast.parse(code, mode="eval").body


@pytest.mark.parametrize(
    ("code", "written"),
    [
        ("loss", "loss"),
        ("a + b", "(a + b)"),
        ("a * b", "a * b"),
        ("-a", "-a"),
        ("a if b else c", "(a if b else c)"),
        ("f(x).mean()", "f(x).mean()"),
        ("a or b", "(a or b)"),
        ("a ** b", "a ** b"),
    ],
)
def test_what_is_divided(code, written):
    divided = f"{spelling.dividend(expression(code), code)} / n"
    assert divided == f"{written} / n"
    parsed = expression(divided)
    assert isinstance(parsed, ast.BinOp)
    assert ast.unparse(parsed.left) == ast.unparse(expression(code))


@pytest.mark.parametrize(
    ("code", "written"),
    [("n", "n"), ("4", "4"), ("a * b", "(a * b)"), ("-n", "(-n)"), ("len(x)", "len(x)")],
)
def test_what_divides(code, written):
    assert spelling.operand(expression(code), code) == written


def test_looking_is_pure_and_doing_is_not():
    assert spelling.is_pure(expression("i % args.n == 0 and len(x) > 1"))
    for code in ("f()", "(x := 1)", "it.next()", "a[f()]"):
        assert not spelling.is_pure(expression(code))


def test_names():
    assert spelling.called(expression("self.opt.step()")) == "step"
    assert spelling.called(expression("step()")) == "step"
    assert spelling.called(expression("fs[0]()")) == ""
    assert ast.unparse(spelling.receiver(expression("self.opt.step()"))) == "self.opt"
    assert spelling.receiver(expression("step()")) is None
    assert spelling.same(expression("a.b"), expression("a . b"))
    assert not spelling.same(expression("a.b"), expression("a.c"))
