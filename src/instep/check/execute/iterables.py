"""Iterables: what going through a value gives, how often, and how long it is."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from instep.check.execute import comprehensions, numbers, roles, standins, tensors
from instep.check.execute.levels import goes_down
from instep.check.execute.tensors import Tensor
from instep.check.execute.things import Loader, Param, Parameters, Window, Windows
from instep.check.execute.values import (
    LENGTH,
    UNEVEN,
    DictValue,
    Iterator,
    ListValue,
    Range,
    Thing,
    Unknown,
    unify,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from instep.check.execute.machine import Machine
    from instep.check.execute.program import Scope
    from instep.check.execute.values import Value

PLAIN = 3
"""Iterations of a loop in which nothing hangs on a count."""
_MOST_THINGS = 16


class Source:
    """What a loop goes through."""

    def __init__(
        self,
        kind: str,
        element: Callable[[int], Value],
        length: int | None = None,
        *,
        literal: bool = False,
        bound: Value = None,
        origin: Thing | None = None,
        cycled: tuple[Value, ...] = (),
        standing: tuple[Value, ...] = (),
    ) -> None:
        self.kind = kind  # loader, range, unknown, things, params
        self.element = element
        self.length = length
        self.literal = literal  # the length is written in the source
        self.bound = bound  # the unknown that the length is
        self.origin = origin
        self.endless = False
        self.strided = False  # a range that goes in steps: something is cut into pieces
        self.cycled = cycled  # what is gone through again and again beside the rest
        self.standing = standing  # elements of which each may stand for many


def source_of(m: Machine, node: ast.AST, value: Value, scope: Scope) -> Source:
    """Say what going through a value gives."""
    whole = value
    value = unify(value)
    if isinstance(value, Iterator):
        return _iterated(m, node, value, scope)
    if isinstance(value, Range):
        return _ranged(value)
    if isinstance(value, (Parameters, Param)):
        every = comprehensions.any_element(m, node, value, scope)
        return Source("params", lambda _: every, 1)
    if isinstance(value, (tuple, ListValue, DictValue)):
        found = _contained(value)
        if found is not None:
            return found
    if isinstance(value, Tensor):
        return Source("unknown", lambda _: tensors.derive(m, node, [value], scope))
    origin = value if isinstance(value, Loader | Windows) else whole
    return _unknown(m, node, origin if isinstance(origin, Thing) else None, scope)


def _contained(value: tuple[Value, ...] | ListValue | DictValue) -> Source | None:
    items = list(value) if isinstance(value, tuple) else list(value.items)
    if isinstance(value, tuple) or value.exact:
        length = min(len(items), _MOST_THINGS)
        known = items[:length] or [None]  # beside something longer, an empty one is asked as well
        return Source("things", lambda i: known[i % len(known)], length, literal=True)
    if not items:
        return None
    if all(map(standins.is_trained, items)):
        return Source("things", lambda i: items[i % len(items)], len(items), standing=tuple(items))
    origin = value if isinstance(value, ListValue) else None
    return Source("unknown", lambda _: items[0], origin=origin, standing=tuple(items[:1]))


def _unknown(m: Machine, node: ast.AST, origin: Thing | None, scope: Scope) -> Source:
    drawn = origin.drawn if isinstance(origin, Unknown) else None
    is_loader = isinstance(origin, Loader)
    if not is_loader and drawn is None:
        name = roles.last(origin.known_as) if origin is not None else ""
        is_loader = name in roles.LOADER or "loader" in _spelled(node, scope).lower()
    bound = origin.attrs.get(LENGTH) if isinstance(origin, Unknown) else None
    return Source(
        "loader" if is_loader else "unknown",
        lambda _: _batch(m, node, origin, scope),
        bound=bound,
        origin=origin,
    )


def _spelled(node: ast.AST, scope: Scope) -> str:
    return scope.module.spelled(node.iter) if isinstance(node, ast.For) else ""


def _batch(m: Machine, node: ast.AST, origin: Thing | None, scope: Scope) -> Unknown | Window:
    if isinstance(origin, Windows):
        return Window(origin.size)
    drawn = (origin.drawn or origin) if isinstance(origin, Unknown) else origin
    made = m.unknown(node, scope, "batch", drawn=drawn)
    if origin is not None and UNEVEN in origin.attrs:
        made.attrs[UNEVEN] = True
    return made


@goes_down
def _iterated(m: Machine, node: ast.AST, value: Iterator, scope: Scope) -> Source:
    if value.shape == "zip":
        made = _zipped([source_of(m, node, part, scope) for part in value.of])
        made.cycled = tuple(
            part.of for part in value.of if isinstance(part, Iterator) and part.infinite
        )
        return made
    inner = source_of(m, node, value.of, scope)
    if value.limit is not None:
        inner.length, inner.literal, inner.bound = value.limit, True, None
    inner.endless = inner.endless or value.infinite
    if value.shape == "enumerate":
        start = numbers.number(value.start)
        first = start if isinstance(start, int) else 0
        element = inner.element
        inner.element = lambda i: (first + i, element(i))
    return inner


def _zipped(parts: list[Source]) -> Source:
    lead = next((part for part in parts if part.kind == "loader"), parts[0])
    batches = lead.kind == "loader"  # there is no telling how many of the others one stands for
    lengths = [
        part.length for part in parts if part.length is not None and not (batches and part.standing)
    ]
    return Source(
        lead.kind,
        lambda i: tuple(part.element(i) for part in parts),
        min(lengths) if len(lengths) == len(parts) else lead.length,
        literal=lead.literal,
        bound=lead.bound,
        origin=lead.origin,
        standing=() if batches else tuple(v for part in parts for v in part.standing),
    )


def _ranged(value: Range) -> Source:
    start, step = numbers.number(value.start), numbers.number(value.step)
    first = start if isinstance(start, int) else 0
    stride = step if isinstance(step, int) and step else 1
    stop = numbers.number(value.stop)
    length = None
    if isinstance(value.stop, Unknown):
        length = max(0, stop - first) if isinstance(stop, int) else None
    if not isinstance(value.stop, Unknown) and isinstance(stop, int):
        if not isinstance(value.step, Unknown) and not isinstance(value.start, Unknown):
            length = len(range(first, stop, stride))
        made = Source("range", lambda i: first + i * stride, length, literal=length is not None)
    else:
        made = Source("range", lambda i: first + i * stride, length, bound=value.stop)
    made.strided = value.step != 1
    return made


def length_of(m: Machine, value: Value) -> Value:
    """Return `len(value)`; None if it cannot even be named."""
    known = unify(value)
    while isinstance(known, Iterator):
        known = unify(known.of)
    if isinstance(known, tuple | str):
        return len(known)
    if isinstance(known, ListValue | DictValue) and known.exact:
        return len(known.items)
    if not isinstance(known, Loader | Unknown):
        return None
    found = known.attrs.get(LENGTH)
    if not isinstance(found, Unknown):
        found = known.attrs[LENGTH] = _length(m, known)
    return found


def _length(m: Machine, value: Loader | Unknown) -> Unknown:
    """Return the length of what batches may come from, as long as a loop over it will be."""
    if isinstance(value, Loader):
        found = Unknown(f"len:{id(value)}", f"len({value.known_as})")
        found.count = m.lengths.short()
        return found
    found = Unknown(f"len({value.key})", f"len({value.known_as})")
    around = next((loop for loop in m.loops if loop.origin is value), None)
    if around is not None:
        found.count = around.length or PLAIN
    elif value.drawn is None and roles.last(value.known_as) in roles.LOADER:
        found.count = m.lengths.short()
    return found


def draw(m: Machine, node: ast.AST, value: Value, scope: Scope) -> Value:
    """Return `next(value)`: one more batch."""
    source = source_of(m, node, value, scope)
    if source.kind == "params":
        return source.element(0)
    index = m.sites.get(node, 0)
    m.sites[node] = index + 1
    loop = m.loops[-1] if m.loops else None
    if loop is not None:
        loop.draws = True
    m.note("next", node, scope, origin=source.origin, index=index, loop=loop)
    if source.kind == "things":
        index = min(index, (source.length or 1) - 1)
    return source.element(index)
