"""What mends have in common: they give fixes, best first; the checker keeps the first it can prove.

Names are taken from the calls in the source and not from the ids of events: a helper may know an
optimizer by another name than whoever made it.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, TypeVar

from instep.rules.finding import Fix
from instep.rules.spelling import called, receiver
from instep.rules.view import spelled
from instep.trace import Event, Step
from instep.trace.trees import walk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from instep.rules.edits import Edits
    from instep.rules.finding import Finding
    from instep.rules.source import Loop, Source
    from instep.trace import Place

_E = TypeVar("_E", bound=Event)
_NAMES = (ast.Name, ast.Attribute, ast.Subscript)


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


_ONE_LINERS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)


def optimizer_name(source: Source, place: Place | None) -> str | None:
    """Return how the source names the optimizer of a step: `opt.step()`, `scaler.step(opt)`."""
    call = source.call_at(place)
    if call is None or called(call) != "step":
        return None
    if any(isinstance(node, _ONE_LINERS) for node in source.ancestors(call)):
        return None  # the name is known in there only
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
    for node in walk(source.scope(near)):
        if isinstance(node, ast.Call) and called(node) == "step":
            named = [receiver(node), *node.args[:1]]
            if any(each is not None and source.code(each) == name for each in named):
                found.append(node)
    return found


def step_statement(source: Source, finding: Finding, near: ast.AST) -> ast.stmt | None:
    """Return the statement of a step: in the function of a node, if there is one there."""
    shown = statements(source, evidence(finding, Step))
    named = (
        source.statement(call)
        for optimizer in finding.evidence[0].touches() or ()
        for call in steps_of(source, optimizer, near)
    )
    here = (statement for statement in shown if source.scope(statement) is source.scope(near))
    return next(here, None) or next(named, None) or next(iter(shown), None)


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
