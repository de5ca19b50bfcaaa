"""One update per batch in place of one per piece: what stands in the loop over the pieces moves."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from instep.rules.counting import pieces
from instep.rules.edits import insert, move, replace
from instep.rules.losses import divided
from instep.rules.mending import evidence, offer, statements
from instep.rules.spelling import called
from instep.trace import Backward, Zero
from instep.trace.trees import walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.rules.edits import Edits
    from instep.rules.finding import Finding, Fix
    from instep.rules.source import Loop, Source

_CLOSES = {"unscale_", "clip_grad_norm_", "clip_grad_value_", "clip_grad_norm", "update"}
_SEQUENCES = {"split", "chunk", "tensor_split", "unbind", "list", "tuple", "hsplit", "vsplit"}
_NAMES = ("patches", "pieces", "parts")


def step_after_pieces(finding: Finding, source: Source) -> Iterator[Fix]:
    """Clear before the loop over the pieces, step after it, and take their mean."""
    step = source.statement_at(finding.place)
    loop = next(iter(source.loops(step)), None) if step is not None else None
    if step is None or loop is None:
        return
    clears = [
        statement
        for statement in statements(source, evidence(finding, Zero))
        if statement in loop.body
    ]
    closing = [s for s in loop.body if s is source.child_of(loop, step) or _closes(s)]
    outer = _outermost(source, loop)
    cleared: Edits | None = move(source, clears, outer) if clears else ()
    stepped = move(source, closing, outer, after=True)
    title = "clear before the pieces and step after them"
    sized = _size(source, loop) if outer is loop else _grid(source, loop, outer)
    if sized is not None:
        size, naming = sized
        calls = [source.call_at(event.place) for event in evidence(finding, Backward)]
        mean = [None if call is None else divided(source, call, size) for call in calls]
        whole = f"{title}, and divide by their number"
        yield from offer(whole, naming, cleared, stepped, *mean, is_safe=False)
    yield from offer(title, cleared, stepped, is_safe=False)


def _outermost(source: Source, loop: Loop) -> Loop:
    """Return the loop in which all pieces are: a grid of them is gone through by two or three."""
    for outer in source.loops(loop):
        if not isinstance(outer, ast.For) or len(outer.body) != 1 or not _cuts(loop, outer):
            break
        loop = outer
    return loop


def _cuts(loop: Loop, outer: ast.For) -> bool:
    """Say whether a loop counts where pieces are cut out."""
    if not isinstance(outer.target, ast.Name) or _range(outer) is None:
        return False
    name = outer.target.id
    slices = (node for node in walk(loop) if isinstance(node, ast.Slice))
    return any(isinstance(n, ast.Name) and n.id == name for cut in slices for n in walk(cut))


def _range(loop: ast.AST) -> ast.Call | None:
    iterated = getattr(loop, "iter", None)
    is_range = isinstance(iterated, ast.Call) and called(iterated) == "range"
    return iterated if is_range else None


def _grid(source: Source, loop: Loop, outer: Loop) -> tuple[str, Edits | None] | None:
    """Return the number of pieces of a grid as code, with edits that give it a name."""
    around = [each for each in [loop, *source.loops(loop)] if each is outer or _is_in(each, outer)]
    ranges = [_range(each) for each in reversed(around)]
    taken = {n.id for n in walk(source.scope(loop)) if isinstance(n, ast.Name)}
    name = next((name for name in _NAMES if name not in taken), None)
    if name is None or any(each is None or each.keywords for each in ranges):
        return None
    counters = {getattr(getattr(each, "target", None), "id", None) for each in around}
    names = (n for each in ranges if each is not None for n in walk(each))
    if any(isinstance(n, ast.Name) and n.id in counters for n in names):
        return None  # how many there are in a row hangs on the row
    counts = [f"len({source.code(each)})" for each in ranges if each is not None]
    named = insert(source, outer, f"{name} = {' * '.join(counts)}")
    return None if named is None or "\n" in "".join(counts) else (name, named)


def _is_in(node: ast.AST, outer: ast.AST) -> bool:
    return any(below is node for below in walk(outer))


def _closes(statement: ast.stmt) -> bool:
    return any(isinstance(n, ast.Call) and called(n) in _CLOSES for n in walk(statement))


def _size(source: Source, loop: Loop) -> tuple[str, Edits | None] | None:
    """Return the number of pieces as code, with edits that give them a name if they have none."""
    size = pieces(source, loop)
    if size is not None:
        return size, ()
    iterated = getattr(loop, "iter", None)
    while isinstance(iterated, ast.Call) and called(iterated) in {"zip", "enumerate", "tqdm"}:
        iterated = iterated.args[0] if iterated.args else None
    if not isinstance(iterated, ast.Call):
        return None
    taken = {n.id for n in walk(source.scope(loop)) if isinstance(n, ast.Name)}
    name = next((name for name in _NAMES if name not in taken), None)
    if name is None:
        return None
    code = source.code(iterated)
    value = code if called(iterated) in _SEQUENCES else f"list({code})"
    named = insert(source, loop, f"{name} = {value}")
    if named is None or "\n" in code:
        return None
    return f"len({name})", (*named, *replace(iterated, name))
