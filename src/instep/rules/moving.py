"""Ways to move statements and to put new ones: closest first, then out of branches and helpers."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, TypeAlias

from instep.rules.edits import insert, move
from instep.rules.mending import offer
from instep.rules.spelling import called, receiver
from instep.trace.trees import walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.rules.edits import Edits
    from instep.rules.finding import Fix
    from instep.rules.source import Source

_LIFTED = (ast.If, ast.With, ast.AsyncWith, ast.Try)
_CARRIES = (ast.If, ast.For, ast.With)
_MOST_CALLS = 3
_MOST_WAYS = 12

Way: TypeAlias = tuple[ast.stmt, ...]
"""A statement, the call of the function that it is in, the call of the one that this is in."""


def lifted(source: Source, statement: ast.stmt, other: ast.AST) -> Iterator[ast.stmt]:
    """Give a statement, then the branches around it, as long as another is not in them."""
    around = set(source.ancestors(other))
    if not source.is_elif(statement):
        yield statement
    for node in source.around(statement):
        if not isinstance(node, _LIFTED) or node in around:
            return
        if not source.is_elif(node):
            yield node


def carried(source: Source, statement: ast.stmt, other: ast.AST) -> Iterator[ast.stmt]:
    """Give the largest statement that does nothing but this one, then the statement itself."""
    around = set(source.ancestors(other))
    whole: ast.stmt = statement
    block = source.block(whole)
    while block is not None and len(block.statements) == 1 and isinstance(block.owner, _CARRIES):
        owner = block.owner
        if owner in around or getattr(owner, "orelse", None) or source.is_elif(owner):
            break
        whole = owner
        block = source.block(whole)
    yield whole
    if whole is not statement:
        yield statement


def sites(source: Source, statement: ast.stmt, *, is_whole: bool = False) -> Iterator[ast.stmt]:
    """Give a statement, then the call of the function it is in, if there is one in the file.

    `is_whole`: only as long as the function does nothing else.
    """
    for _ in range(_MOST_CALLS):
        yield statement
        function = source.function(statement)
        if function is None or isinstance(function, ast.Lambda):
            return
        body = [s for s in function.body if not _is_docstring(s)]
        if is_whole and body != [next(carried(source, statement, source.tree))]:
            return
        calls = _calls_of(source, function)
        if len(calls) != 1 or source.function(calls[0]) is function:
            return
        statement = calls[0]


def meetings(source: Source, one: ast.stmt, other: ast.stmt) -> Iterator[tuple[Way, Way]]:
    """Give the ways from two statements, through the calls of the functions that they are in, to
    a function that they meet in.
    """
    for mine in _ways(source, one):
        for theirs in _ways(source, other):
            here, there = ([source.scope(site) for site in way] for way in (mine, theirs))
            if here[-1] is there[-1] and len({*here, *there}) == len(here) + len(there) - 1:
                yield mine, theirs


def _ways(source: Source, statement: ast.stmt) -> list[Way]:
    ways: list[Way] = [(statement,)]
    for way in ways:
        function = source.function(way[-1])
        if len(way) == _MOST_CALLS or function is None or isinstance(function, ast.Lambda):
            continue
        seen = [source.scope(site) for site in way]
        calls = [call for call in _calls_of(source, function) if source.scope(call) not in seen]
        ways += [(*way, call) for call in calls[: max(0, _MOST_WAYS - len(ways))]]
    return ways


def _calls_of(source: Source, function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.stmt]:
    """Return the statements that seem to call a function.

    What it calls itself by its own name is something else: `def update(self)` that does
    `self.scaler.update()`.
    """
    found = []
    for call in _calls_in(source.tree):
        if called(call) != function.name:
            continue
        on, above = receiver(call), source.statement(call)
        is_other = on is not None and not isinstance(on, ast.Name)
        if above is not None and not (is_other and source.function(above) is function):
            found.append(above)
    return found


def _calls_in(node: ast.AST) -> Iterator[ast.Call]:
    return (each for each in walk(node) if isinstance(each, ast.Call))


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def moves(
    source: Source,
    title: str,
    moved: ast.stmt | None,
    to: ast.stmt | None,
    *,
    after: bool = False,
    is_safe: bool = True,
) -> Iterator[Fix]:
    """Give the ways to move a statement to another one, in a function that they meet in."""
    if moved is None or to is None or _is_read(source, moved):
        return
    for statement in sites(source, moved, is_whole=True):
        for site in sites(source, to):
            if statement is not site and source.scope(statement) is source.scope(site):
                for edits in _moves(source, statement, site, after=after):
                    yield from offer(title, edits, is_safe=is_safe)
                return
    if _is_portable(source, moved, to):
        for edits in _moves(source, moved, to, after=after):
            yield from offer(title, edits, is_safe=is_safe)


def _is_read(source: Source, statement: ast.stmt) -> bool:
    """Whether a statement gives a name something that is read elsewhere: it stays where it is."""
    targets = [n.id for n in _names(statement) if isinstance(n.ctx, ast.Store)]
    if not targets:
        return False
    own = set(_names(statement))
    return any(
        name.id in targets and name not in own and isinstance(name.ctx, ast.Load)
        for name in _names(source.scope(statement))
    )


def _is_portable(source: Source, moved: ast.stmt, to: ast.stmt) -> bool:
    """Whether a statement means the same in another method: it uses nothing local but `self`."""
    here, there = source.function(moved), source.function(to)
    if here is None or there is None or here is there:
        return False
    owner = source.parent(here)
    if not isinstance(owner, ast.ClassDef) or owner is not source.parent(there):
        return False
    arguments = [arg.arg for arg in walk(here.args) if isinstance(arg, ast.arg)]
    stored = [n.id for n in _names(here) if isinstance(n.ctx, ast.Store)]
    local = {*arguments, *stored} - {"self"}
    whole = next(carried(source, moved, to))
    return local.isdisjoint(n.id for n in _names(whole))


def _names(node: ast.AST) -> Iterator[ast.Name]:
    return (each for each in walk(node) if isinstance(each, ast.Name))


def _moves(source: Source, moved: ast.stmt, to: ast.stmt, *, after: bool) -> Iterator[Edits | None]:
    for whole in carried(source, moved, to):
        for at in lifted(source, _repeated(source, to), whole):
            if at is whole or whole in source.ancestors(at):
                continue
            where = behind(source, at) if after else at
            if where is whole:  # the update of a scaler is what is moved
                where = at
            yield move(source, [whole], where, after=after)


def _repeated(source: Source, statement: ast.stmt) -> ast.stmt:
    """Return the loop that does nothing but a statement: over all optimizers, for one."""
    block = source.block(statement)
    while block is not None and len(block.statements) == 1 and isinstance(block.owner, ast.For):
        statement = block.owner
        block = source.block(statement)
    return statement


def inserts(
    source: Source,
    title: str,
    code: str,
    at: ast.stmt | None,
    other: ast.AST | None = None,
    *,
    after: bool = False,
    is_safe: bool = True,
) -> Iterator[Fix]:
    """Give the ways to put code before or after a statement."""
    if at is None:
        return
    for place in lifted(source, at, other or source.tree):
        where = behind(source, place) if after else place
        yield from offer(title, insert(source, where, code, after=after), is_safe=is_safe)


def behind(source: Source, step: ast.stmt) -> ast.stmt:
    """Return the last statement that belongs to a step: the update of its scaler."""
    block = source.block(step)
    for follower in block.statements[block.at + 1 : block.at + 2] if block is not None else []:
        match follower:
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=through, attr="update"))):
                if "scaler" in source.code(through).lower():
                    return follower
    return step


def first_of_close(source: Source, step: ast.stmt) -> ast.stmt:
    """Return the first statement that closes a window with a step: a clip right before it."""
    block = source.block(step)
    before = block.statements[: block.at] if block is not None else []
    for statement in reversed(before):
        if not any("clip" in called(call) for call in _calls_in(statement)):
            break
        step = statement
    return step
