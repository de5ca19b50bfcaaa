"""What mends have in common: they give fixes, best first; the checker keeps the first it can prove.

Names are taken from the calls in the source and not from the ids of events: a helper may know an
optimizer by another name than whoever made it.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, TypeVar

from instep.rules.edits import insert, move
from instep.rules.finding import Fix
from instep.rules.spelling import called, receiver
from instep.rules.view import spelled
from instep.trace import Event, Step

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from instep.rules.edits import Edits
    from instep.rules.finding import Finding
    from instep.rules.source import Loop, Source
    from instep.trace import Place

_E = TypeVar("_E", bound=Event)
_LIFTED = (ast.If, ast.With, ast.AsyncWith, ast.Try)
_NAMES = (ast.Name, ast.Attribute, ast.Subscript)
_CARRIES = (ast.If, ast.For, ast.With)


def offer(title: str, *edits: Edits | None, is_safe: bool = True) -> Iterator[Fix]:
    """Give a fix of these edits together, unless one of them could not be made."""
    made = [each for each in edits if each is not None]
    if len(made) == len(edits):
        yield Fix(title, tuple(edit for each in made for edit in each), is_safe)


def evidence(finding: Finding, kind: type[_E]) -> list[_E]:
    """Return the events of one class that show a finding, each place once."""
    found: dict[object, _E] = {}
    for event in finding.evidence:
        if isinstance(event, kind):
            found.setdefault(event.place, event)
    return list(found.values())


def statements(source: Source, events: Iterable[Event]) -> list[ast.stmt]:
    """Return the statements behind events, as far as they are in this source."""
    found = (source.statement_at(event.place) for event in events)
    return list(dict.fromkeys(statement for statement in found if statement is not None))


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


def moves(
    source: Source,
    title: str,
    moved: ast.stmt | None,
    to: ast.stmt | None,
    *,
    after: bool = False,
    is_safe: bool = True,
) -> Iterator[Fix]:
    """Give the ways to move a statement to another one, in the same function."""
    if moved is None or to is None or moved is to or source.scope(moved) is not source.scope(to):
        return
    for whole in carried(source, moved, to):
        for at in lifted(source, to, whole):
            where = behind(source, at) if after else at
            if at is whole or whole in source.ancestors(at):
                continue
            if where is whole:  # the update of a scaler is what is moved
                where = at
            yield from offer(title, move(source, [whole], where, after=after), is_safe=is_safe)


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


def optimizer_name(source: Source, place: Place | None) -> str | None:
    """Return how the source names the optimizer of a step: `opt.step()`, `scaler.step(opt)`."""
    call = source.call_at(place)
    if call is None or called(call) != "step":
        return None
    given = [source.code(arg) for arg in call.args[:1] if isinstance(arg, _NAMES)]
    if given and "closure" not in given[0]:
        return given[0]
    stepped = receiver(call)
    return None if stepped is None else source.code(stepped)


def scaler_name(source: Source, place: Place | None) -> str | None:
    """Return how the source names the scaler of a step: `scaler.step(opt)`."""
    call = source.call_at(place)
    if call is None or called(call) != "step" or not call.args:
        return None
    through = receiver(call)
    return None if through is None else source.code(through)


def steps_of(source: Source, optimizer: str | None, near: ast.AST) -> list[ast.Call]:
    """Return the calls in the function of a node that look like steps of an optimizer."""
    if optimizer is None:
        return []
    name = spelled(optimizer)
    found = []
    for node in ast.walk(source.scope(near)):
        if isinstance(node, ast.Call) and called(node) == "step":
            named = [receiver(node), *node.args[:1]]
            if any(each is not None and source.code(each) == name for each in named):
                found.append(node)
    return found


def step_statement(source: Source, finding: Finding, near: ast.AST) -> ast.stmt | None:
    """Return the statement of a step in the evidence, or else one of the same optimizer."""
    for statement in statements(source, evidence(finding, Step)):
        if source.scope(statement) is source.scope(near):
            return statement
    for optimizer in finding.evidence[0].touches() or ():
        for call in steps_of(source, optimizer, near):
            return source.statement(call)
    return None


def meeting(source: Source, one: ast.AST, other: ast.AST) -> tuple[ast.stmt, ast.stmt] | None:
    """Return the two statements of one block in which two nodes stand."""
    above = [one, *source.around(one)]
    for node in (other, *source.around(other)):
        if not isinstance(node, ast.stmt):
            continue
        block = source.block(node)
        for mine in above:
            if block is not None and isinstance(mine, ast.stmt) and mine in block.statements:
                return mine, node
    return None


def loop_apart(source: Source, inside: ast.AST, outside: ast.AST) -> Loop | None:
    """Return the outermost loop around one node that is not around the other."""
    shared = set(source.loops(outside))
    apart = [loop for loop in source.loops(inside) if loop not in shared]
    return apart[-1] if apart else None
