"""Gates as they are written: the condition that lets every n-th micro-batch through to the step."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Literal

from instep.rules.source import is_loop
from instep.trace.plain import dataclass
from instep.trace.trees import walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.rules.source import Source

_COUNTERS = (ast.Name, ast.Attribute, ast.BinOp, ast.Subscript)
_ONE = (ast.Eq, ast.GtE, ast.Gt)


@dataclass(frozen=True, slots=True)
class Gate:
    """`(i + 1) % n == 0`, or what stands for it."""

    test: ast.expr
    """The whole condition, wherever it is written."""
    asked: ast.expr
    """The part of it that counts: `(i + 1) % n == 0` of `(i + 1) % n == 0 or last`."""
    counter: ast.expr
    """`i + 1`."""
    number: ast.expr
    """`n`."""
    kind: Literal["modulo", "threshold"]
    is_passed: bool
    """True: the step is made where `asked` holds; False: where not, as in `!= 0: continue`."""


def gate_of(source: Source, node: ast.AST) -> Gate | None:
    """Return the gate that a node stands behind in its innermost loop."""
    tests = [_written(source, test, node, holds=holds) for test, holds in _tests(source, node)]
    for read in (_modulo, _threshold):
        for test, is_passed in tests:
            for part, holds in _parts(test, holds=is_passed):
                if (found := read(part, holds=holds)) is not None:
                    return Gate(test, part, *found, holds)
    return None


def _tests(source: Source, node: ast.AST) -> Iterator[tuple[ast.expr, bool]]:
    """Go up to the loop, giving each condition, and whether the node is reached where it holds."""
    below = node
    for above in source.around(node):
        if isinstance(above, ast.If) and below is not above.test:
            yield above.test, below in above.body
        statements = next(
            (
                block
                for block in (getattr(above, name, None) for name in ("body", "orelse"))
                if isinstance(block, list) and below in block
            ),
            [],
        )
        if isinstance(below, ast.stmt) and below in statements:
            for guard in reversed(statements[: statements.index(below)]):
                match guard:
                    case ast.If(test=test, body=[*_, ast.Continue()], orelse=[]):
                        yield test, False
        if is_loop(above):
            return
        below = above


def _written(
    source: Source, test: ast.expr, node: ast.AST, *, holds: bool
) -> tuple[ast.expr, bool]:
    """Return what a flag stands for, if it is set once in the same function."""
    match test:
        case ast.Name(id=name):
            flag, is_set = name, holds
        case ast.UnaryOp(op=ast.Not(), operand=ast.Name(id=name)):
            flag, is_set = name, not holds
        case _:
            return test, holds
    values = [
        statement.value
        for statement in walk(source.scope(node))
        if isinstance(statement, ast.Assign)
        and any(isinstance(to, ast.Name) and to.id == flag for to in statement.targets)
    ]
    return (values[0], is_set) if len(values) == 1 else (test, holds)


def _parts(test: ast.expr, *, holds: bool) -> Iterator[tuple[ast.expr, bool]]:
    """Take a condition apart where `and`, `or` and `not` join it."""
    match test:
        case ast.BoolOp(values=values):
            for value in values:
                yield from _parts(value, holds=holds)
        case ast.UnaryOp(op=ast.Not(), operand=ast.BoolOp() | ast.Compare() as negated):
            yield from _parts(negated, holds=not holds)
        case _:
            yield test, holds


def _modulo(
    part: ast.expr, *, holds: bool
) -> tuple[ast.expr, ast.expr, Literal["modulo", "threshold"]] | None:
    remainder: ast.expr | None = None
    match part:
        case ast.Compare(left=left, ops=[ast.Eq()]) if holds:
            remainder = left
        case ast.Compare(left=left, ops=[ast.NotEq()], comparators=[ast.Constant(value=0)]):
            remainder = None if holds else left
        case ast.UnaryOp(op=ast.Not(), operand=left) if holds:
            remainder = left
        case ast.BinOp() if not holds:
            remainder = part
    match remainder:
        case ast.BinOp(left=counter, op=ast.Mod(), right=number):
            return counter, number, "modulo"
    return None


def _threshold(
    part: ast.expr, *, holds: bool
) -> tuple[ast.expr, ast.expr, Literal["modulo", "threshold"]] | None:
    match part:
        case ast.Compare(left=counter, ops=[op], comparators=[number]) if (
            holds and isinstance(op, _ONE) and isinstance(counter, _COUNTERS)
        ):
            fits = isinstance(number, ast.Name | ast.Attribute | ast.Subscript | ast.Constant)
            zero = isinstance(number, ast.Constant) and number.value in {None, 0, 1}
            return (counter, number, "threshold") if fits and not zero else None
    return None
