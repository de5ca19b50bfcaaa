"""Loops that count their rounds: the index, where it starts, and how many there will be."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from instep.rules.edits import replace
from instep.rules.spelling import called, operand, same
from instep.trace.plain import dataclass
from instep.trace.trees import walk

if TYPE_CHECKING:
    from instep.rules.finding import Edit
    from instep.rules.gates import Gate
    from instep.rules.source import Loop, Source

# Wrappers that give what they are given, one by one.
_SHOWS = {"tqdm", "trange", "track", "ProgressBar", "progress_bar"}
_INDICES = ("i", "index", "batch_index")


@dataclass(frozen=True, slots=True)
class Count:
    """What a loop over batches counts: `for i, batch in enumerate(loader, start)`."""

    loop: Loop
    counter: str
    start: int
    length: str | None
    """`len(loader)`, as code; None if it is not known that there is a length."""


def count_of(source: Source, gate: Gate, node: ast.AST) -> Count | None:
    """Return the loop around a node that counts the gate's counter by itself."""
    names = {part.id for part in walk(gate.counter) if isinstance(part, ast.Name)}
    for loop in source.loops(node):
        counted = count(source, loop)
        if counted is not None and counted.counter in names:
            return counted
    return None


def count(source: Source, loop: Loop) -> Count | None:
    """Read a loop as one that counts its rounds."""
    match loop:
        case ast.For(
            target=ast.Tuple(elts=[ast.Name(id=name), _]) | ast.Name(id=name), iter=ast.Call() as it
        ):
            pass
        case _:
            return None
    shown = _shown(it)
    if not isinstance(shown, ast.Call) or not shown.args:
        return None
    if called(shown) == "enumerate" and isinstance(loop.target, ast.Tuple):
        start = _start(shown)
        if start is None:
            return None
        return Count(loop, name, start, _length(source, shown.args[0]))
    if called(shown) == "range" and len(shown.args) == 1 and isinstance(loop.target, ast.Name):
        return Count(loop, name, 0, source.code(shown.args[0]))
    return None


def enumerated(source: Source, node: ast.AST) -> tuple[Count, tuple[Edit, ...]] | None:
    """Return the loop around a node as it would count its batches, with the edits that make it."""
    loop = next(iter(source.loops(node)), None)
    if not isinstance(loop, ast.For):
        return None
    length = _length(source, loop.iter)
    taken = {part.id for part in walk(source.scope(loop)) if isinstance(part, ast.Name)}
    name = next((name for name in _INDICES if name not in taken), None)
    if length is None or name is None:
        return None
    batch = source.code(loop.target)
    if isinstance(loop.target, ast.Tuple) and not batch.startswith("("):
        batch = f"({batch})"
    edits = (
        *replace(loop.target, f"{name}, {batch}"),
        *replace(loop.iter, f"enumerate({source.code(loop.iter)})"),
    )
    return Count(loop, name, 0, length), edits


def pieces(source: Source, loop: Loop) -> str | None:
    """Return how many rounds a loop has, as code: `n` of `range(n)`, `len(patches)`."""
    if not isinstance(loop, ast.For):
        return None
    shown = _shown(loop.iter)
    if isinstance(shown, ast.Call) and called(shown) == "range" and len(shown.args) == 1:
        return operand(shown.args[0], source.code(shown.args[0]))
    if isinstance(shown, ast.Call) and called(shown) in {"enumerate", "zip"} and shown.args:
        return _length(source, shown.args[0])
    return _length(source, shown)


def shift_of(counter: ast.expr, name: str) -> int | None:
    """Return what is added to a name: 1 for `i + 1`, 0 for `i`; None for anything else."""
    match counter:
        case ast.Name(id=found) if found == name:
            return 0
        case (
            ast.BinOp(left=ast.Name(id=found), op=ast.Add(), right=ast.Constant(value=int(added)))
            | ast.BinOp(left=ast.Constant(value=int(added)), op=ast.Add(), right=ast.Name(id=found))
        ) if found == name:
            return added
    return None


def divisions(loop: ast.AST, number: ast.expr) -> list[ast.expr]:
    """Return where a loop divides by a number: the divisor of each `/ n` and `/= n`."""
    found: list[ast.expr] = []
    for node in walk(loop):
        match node:
            case (
                ast.BinOp(op=ast.Div(), right=divisor) | ast.AugAssign(op=ast.Div(), value=divisor)
            ) if same(divisor, number):
                found.append(divisor)
    return sorted(found, key=lambda node: (node.lineno, node.col_offset))


def _length(source: Source, node: ast.expr) -> str | None:
    shown = _shown(node)
    if isinstance(shown, ast.Name | ast.Attribute):
        return f"len({source.code(shown)})"
    return None


def _shown(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Call) and called(node) in _SHOWS and node.args:
        node = node.args[0]
    return node


def _start(call: ast.Call) -> int | None:
    given = [*call.args[1:], *(word.value for word in call.keywords if word.arg == "start")]
    if not given:
        return 0
    match given[0]:
        case ast.Constant(value=int(start)):
            return start
    return None
