"""Comprehensions: one element stands for all, unless what is gone through is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.check.execute import assignment, standins, subscripts, tensors
from instep.check.execute.levels import goes_down
from instep.check.execute.program import Scope
from instep.check.execute.tensors import Tensor
from instep.check.execute.things import Loader, Net, Param, Parameters
from instep.check.execute.values import DictValue, Iterator, ListValue, Range, unify

if TYPE_CHECKING:
    import ast

    from instep.check.execute.machine import Machine
    from instep.check.execute.values import Value

_MOST = 6
"""Elements of which each is looked at."""


def listed(m: Machine, node: ast.ListComp | ast.GeneratorExp | ast.SetComp, scope: Scope) -> Value:
    """Evaluate a list or set comprehension, or a generator expression."""
    first = node.generators[0]
    over = unify(m.ev(first.iter, scope))
    known = over.items if isinstance(over, ListValue) and over.exact else over
    inner = _inner(scope, node)
    if len(node.generators) == 1 and isinstance(known, tuple | list) and len(known) <= _MOST:
        items = []
        for element in known:
            assignment.assign(m, first.target, element, inner)
            items.append(m.ev(node.elt, inner))
        return ListValue(items, exact=not first.ifs, born=m.serial)
    _go_through(m, node.generators, node, inner)
    element = m.ev(node.elt, inner)
    if isinstance(element, Param):
        complete = element.complete and not _filters(node.generators, scope)
        return Parameters(element.nets, complete=complete)
    rest = _rest(over) if standins.is_trained(element) else []
    if rest and len(node.generators) == 1 and not first.ifs:
        items = [element]
        for index in rest:
            assignment.assign(m, first.target, index, inner)
            items.append(m.ev(node.elt, inner))
        return ListValue(items, born=m.serial)
    return ListValue([element], exact=False, born=m.serial)


def _rest(over: Value) -> list[int]:
    """Return what a short range of known length gives after its first number."""
    if not isinstance(over, Range):
        return []
    bounds = (over.start, over.stop, over.step)
    if not all(type(bound) is int for bound in bounds) or not over.step:
        return []
    known = range(*bounds)
    return list(known[1:]) if len(known) <= _MOST else []


def mapped(m: Machine, node: ast.DictComp, scope: Scope) -> Value:
    """Evaluate a dict comprehension."""
    inner = _inner(scope, node)
    _go_through(m, node.generators, node, inner)
    return DictValue({"?": m.ev(node.value, inner)}, exact=False)


def _inner(scope: Scope, node: ast.AST) -> Scope:
    inner = Scope(scope.module, scope, node)
    inner.cls, inner.self_value = scope.cls, scope.self_value
    return inner


def _go_through(
    m: Machine, generators: list[ast.comprehension], node: ast.AST, inner: Scope
) -> None:
    for generator in generators:
        over = m.ev(generator.iter, inner)
        assignment.assign(m, generator.target, any_element(m, node, over, inner), inner)


def _filters(generators: list[ast.comprehension], scope: Scope) -> bool:
    """Say whether elements are left out that matter to gradients."""
    tests = [test for generator in generators for test in generator.ifs]
    # What has no gradient or asks for none has nothing to clear or clip.
    return any("grad" not in scope.module.spelled(test) for test in tests)


def any_element(m: Machine, node: ast.AST, over: Value, scope: Scope) -> Value:
    """Return one element that stands for all of an iterable."""
    over = unify(over)
    found: Value
    match over:
        case Parameters():
            found = Param(over.nets, complete=over.complete)
            if over.named:
                found = (m.unknown(node, scope, "name"), found)
        case Param():
            found = over
        case tuple():
            found = next(iter(over), m.unknown(node, scope))
        case ListValue() | DictValue():
            found = next(iter(over.items), m.unknown(node, scope))
        case Net():
            found = subscripts.part(over)
        case Tensor():
            found = tensors.derive(m, node, [over], scope)
        case Iterator():
            found = _of_iterator(m, node, over, scope)
        case _:
            drawn = over if isinstance(over, Loader) else getattr(over, "drawn", None)
            found = m.unknown(node, scope, drawn=drawn)
    return found


@goes_down
def _of_iterator(m: Machine, node: ast.AST, over: Iterator, scope: Scope) -> Value:
    if over.shape == "enumerate":
        return (m.unknown(node, scope), any_element(m, node, over.of, scope))
    if over.shape == "zip":
        return tuple(any_element(m, node, part, scope) for part in over.of)
    return m.unknown(node, scope)
