"""Loops: how often a body runs, what its variable stands for, and when an epoch ends."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from instep.check.execute import attributes, branches, expressions, numbers, roles, tensors
from instep.check.execute.journal import Loop
from instep.check.execute.machine import BREAK, EXECUTE, RAISE, RETURN, Machine
from instep.check.execute.values import (
    DictValue,
    Iterator,
    ListValue,
    Loader,
    Param,
    Parameters,
    Range,
    Tensor,
    Thing,
    Unknown,
    Value,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from instep.check.execute.program import Scope

PLAIN = 3
"""Iterations of a loop in which nothing hangs on a count."""
EPOCHS = 2
_MOST_THINGS = 16
UNEVEN = "(uneven)"
"""Marks pieces of which the last one is shorter."""


@dataclass
class Source:
    """What a loop goes through."""

    kind: str  # loader, range, unknown, things, params
    element: Callable[[int], Value]
    length: int | None = None
    literal: bool = False  # the length is written in the source
    bound: Value = None  # the unknown that the length is
    origin: Thing | None = None
    endless: bool = False


def source_of(m: Machine, node: ast.AST, value: Value, scope: Scope) -> Source:
    """Say what going through a value gives."""
    whole = value
    value = tensors.unify(value)
    if isinstance(value, Iterator):
        return _iterated(m, node, value, scope)
    if isinstance(value, Range):
        return _ranged(m, value)
    if isinstance(value, Parameters | Param):
        return Source("params", lambda i: expressions.any_element(m, node, value, scope), 1)
    if isinstance(value, DictValue):
        value = ListValue(list(value.items), exact=value.exact)
    items = list(value) if isinstance(value, tuple) else getattr(value, "items", None)
    if isinstance(items, list) and (isinstance(value, tuple) or value.exact):
        known = items[:_MOST_THINGS]
        return Source("things", lambda i: known[i % len(known)], len(known), literal=True)
    if isinstance(items, list) and items:
        return Source("unknown", lambda i: items[0], None, origin=value)
    if isinstance(value, Loader):
        return Source("loader", lambda i: _batch(m, node, value, scope), value.length,
                      value.length is not None, origin=value)  # fmt: skip
    if isinstance(value, Tensor):
        return Source("unknown", lambda i: tensors.derive(m, node, [value], scope), None)
    origin = whole if isinstance(whole, Thing) else None
    return _unknown(m, node, origin, scope)


def _unknown(m: Machine, node: ast.AST, origin: Thing | None, scope: Scope) -> Source:
    name = roles.last(origin.known_as) if origin is not None else ""
    drawn = getattr(origin, "drawn", None)
    is_loader = drawn is None and (
        roles.LOADER.search(name) is not None or "loader" in _spelled(node).lower()
    )
    kind = "loader" if is_loader else "unknown"
    bound = origin.attrs.get("len()") if origin is not None else None
    return Source(kind, lambda i: _batch(m, node, origin, scope), None, bound=bound, origin=origin)


def _spelled(node: ast.AST) -> str:
    return ast.unparse(node.iter) if isinstance(node, ast.For) else ""


def _batch(m: Machine, node: ast.AST, origin: Thing | None, scope: Scope) -> Unknown:
    drawn = getattr(origin, "drawn", None) or origin
    made = m.unknown(node, scope, "batch", drawn=drawn)
    if origin is not None and UNEVEN in origin.attrs:
        made.attrs[UNEVEN] = True
    return made


def _iterated(m: Machine, node: ast.AST, value: Iterator, scope: Scope) -> Source:
    if value.shape == "zip":
        parts = [source_of(m, node, part, scope) for part in value.of]
        lead = next((part for part in parts if part.kind == "loader"), parts[0])
        lengths = [part.length for part in parts if part.length is not None]
        length = min(lengths) if len(lengths) == len(parts) else lead.length
        return Source(lead.kind, lambda i: tuple(part.element(i) for part in parts), length,
                      lead.literal, lead.bound, lead.origin)  # fmt: skip
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


def _ranged(m: Machine, value: Range) -> Source:
    start, step = numbers.number(value.start), numbers.number(value.step)
    first = start if isinstance(start, int) else 0
    stride = step if isinstance(step, int) and step else 1
    stop = numbers.number(value.stop)
    if isinstance(stop, int) and not isinstance(value.stop, Unknown):
        steps = isinstance(value.step, Unknown) or isinstance(value.start, Unknown)
        length = None if steps else len(range(first, stop, stride))
        return Source("range", lambda i: first + i * stride, length, length is not None)
    length = None
    if isinstance(value.stop, Unknown) and isinstance(stop, int):
        length = max(0, stop - first)
    return Source("range", lambda i: first + i * stride, length, bound=value.stop)


def length_of(m: Machine, value: Value, node: ast.AST, scope: Scope) -> Value:
    """Return `len(value)`."""
    known = tensors.unify(value)
    if isinstance(known, tuple | str):
        return len(known)
    if isinstance(known, ListValue | DictValue) and known.exact:
        return len(known.items)
    if isinstance(known, Iterator):
        return length_of(m, known.of, node, scope)
    if isinstance(known, Loader):
        return _loader_length(m, known)
    if isinstance(known, Unknown):
        found = known.attrs.get("len()")
        if not isinstance(found, Unknown):
            found = Unknown(f"len({known.key})", f"len({known.known_as})", None)
            around = next((loop for loop in m.loops if loop.origin is known), None)
            if around is not None:
                found.count = around.length or PLAIN
            elif known.drawn is None and roles.LOADER.search(roles.last(known.known_as)):
                found.count = m.lengths.length
            known.attrs["len()"] = found
        return found
    return m.unknown(node, scope)


def _loader_length(m: Machine, loader: Loader) -> Value:
    if loader.length is not None:
        return loader.length
    found = loader.attrs.get("len()")
    if not isinstance(found, Unknown):
        found = loader.attrs["len()"] = Unknown(f"len:{id(loader)}", f"len({loader.known_as})")
        found.count = m.lengths.length
    return found


def draw(m: Machine, node: ast.AST, value: Value, scope: Scope) -> Value:
    """Return `next(value)`: one more batch."""
    source = source_of(m, node, value, scope)
    if source.kind in {"params"}:
        return source.element(0)
    index = m.sites.get(id(node), 0)
    m.sites[id(node)] = index + 1
    for loop in m.loops[-1:]:
        loop.draws = True
    loop = m.loops[-1] if m.loops else None
    m.note("next", node, scope, origin=source.origin, index=index, loop=loop)
    if source.kind == "things":
        return source.element(min(index, (source.length or 1) - 1))
    return source.element(index)


def _for(m: Machine, node: ast.For, scope: Scope) -> int | None:
    source = source_of(m, node, m.ev(node.iter, scope), scope)
    scan = scope.module.scan
    if source.kind == "params":
        return _once(m, node, source, scope)
    if source.kind == "things":
        return _through(m, node, source, scope)
    if not scan.any_hot(node.body):
        return _cold(m, node, source, scope)
    loop = _enter(m, node, source.kind, source.origin, scope)
    loop.literal = source.literal
    loop.text = ast.unparse(node.iter)
    loop.name = ast.unparse(node.target)
    loop.patches = bool(roles.PATCHES.search(loop.text) or roles.PATCHES.search(ast.unparse(node.target)))
    try:
        return _iterate(m, node, source, loop, scope)
    finally:
        m.loops.pop()


def _enter(m: Machine, node: ast.AST, kind: str, origin: Thing | None, scope: Scope) -> Loop:
    outer = m.loops[-1] if m.loops else None
    loop = Loop(node, scope.module, kind, origin, outer, start=m.serial)
    for around in m.loops:
        around.nested = True
    m.loops.append(loop)
    return loop


def _iterate(m: Machine, node: ast.For, source: Source, loop: Loop, scope: Scope) -> int | None:
    index = 0
    planned = source.length if source.length == 0 else None
    if source.bound is not None and numbers.number(source.bound) is not None:
        loop.length = source.length
    signal: int | None = None
    gates = 0
    if loop.kind == "loader" and loop.length is None:
        loop.length = source.length if source.length is not None else m.lengths.length
    while planned is None or index < planned:
        attributes.assign(m, node.target, source.element(index), scope)
        m.serial += 1
        loop.index, loop.guard = index, None
        m.note("drawn", node, scope, loop=loop, index=index)
        signal = m.run(node.body, scope)
        index += 1
        if signal in {BREAK, RETURN, RAISE}:
            break
        signal = None
        if index == 1 or (planned is not None and len(loop.moduli) != gates):
            planned, gates = _plan(m, node, source, loop), len(loop.moduli)
            loop.length = planned
    if signal is None:
        _end(m, node, loop, index, source, scope)
        return m.run(node.orelse, scope)
    return None if signal == BREAK else signal


def _end(
    m: Machine, node: ast.For, loop: Loop, index: int, source: Source, scope: Scope
) -> None:
    if source.endless or (loop.outer is None and loop.kind == "range"):
        return
    epoch = m.epochs.get(id(node), 0)
    m.epochs[id(node)] = epoch + 1
    m.note("epoch-end", node, scope, loop=loop, epoch=epoch, batches=index)


def _plan(m: Machine, node: ast.For, source: Source, loop: Loop) -> int:
    """Say how many iterations show what a loop does, after its first one."""
    length = source.length
    short = m.lengths.length + m.lengths.shift
    gated = bool(loop.moduli)
    if loop.nested and loop.kind == "range":
        m.epochal = m.epochal or loop.outer is None
        # What goes round a loop over data counts epochs, unless a gate hangs on it.
        most = short if gated and not _is_epoch(node) else EPOCHS
        return min(most, length) if length is not None else most
    if length is not None and not isinstance(source.bound, Unknown):
        return m.lengths.like(length) if gated else min(length, _most(loop, length))
    if loop.kind == "loader" or (loop.kind == "range" and gated and source.length is None):
        if gated or _asked(source.origin):
            return short
        return PLAIN
    if isinstance(source.bound, Unknown):
        return source.bound.number()
    if gated:
        return short
    return PLAIN


def _asked(origin: Thing | None) -> bool:
    """Say whether the length was asked for, so that the loop has to have it."""
    return origin is not None and "len()" in origin.attrs


def _most(loop: Loop, length: int) -> int:
    return length if length <= 8 and loop.outer is not None else PLAIN


def _is_epoch(node: ast.For) -> bool:
    return "ep" in ast.unparse(node.target).lower()


def _once(m: Machine, node: ast.For, source: Source, scope: Scope) -> int | None:
    """A loop over parameters does the same to each: once stands for all."""
    attributes.assign(m, node.target, source.element(0), scope)
    signal = m.run(node.body, scope)
    return signal if signal == RETURN else None


def _through(m: Machine, node: ast.For, source: Source, scope: Scope) -> int | None:
    """A loop over known things: optimizers, models, phases, numbers."""
    for index in range(source.length or 0):
        attributes.assign(m, node.target, source.element(index), scope)
        m.things.append((id(node), index))
        try:
            signal = m.run(node.body, scope)
        finally:
            m.things.pop()
        if signal == BREAK:
            return None
        if signal in {RETURN, RAISE}:
            return signal
    return m.run(node.orelse, scope)


def _cold(m: Machine, node: ast.For, source: Source, scope: Scope) -> int | None:
    """A loop in which nothing happens to gradients: once, for what it assigns."""
    if source.length == 0:
        return None
    attributes.assign(m, node.target, source.element(0), scope)
    signal = m.run(node.body, scope)
    return signal if signal == RETURN else None


def _while(m: Machine, node: ast.While, scope: Scope) -> int | None:
    scan = scope.module.scan
    hot = scan.any_hot(node.body)
    loop = _enter(m, node, "while", None, scope) if hot else None
    most = PLAIN if hot else 1
    index = 0
    signal: int | None = None
    try:
        while index < most:
            if not branches.test(m, node.test, scope, prefer=True, worth=False):
                return m.run(node.orelse, scope)
            m.serial += 1
            if loop is not None:
                loop.index, loop.guard = index, None
                m.note("drawn", node, scope, loop=loop, index=index)
            signal = m.run(node.body, scope)
            index += 1
            if signal in {BREAK, RETURN, RAISE}:
                break
            if loop is not None and index == 1:
                short = m.lengths.length + m.lengths.shift
                m.epochal = m.epochal or (loop.nested and loop.outer is None)
                most = EPOCHS if loop.nested and not loop.moduli else PLAIN
                most = short * EPOCHS if loop.moduli and not loop.nested else most
    finally:
        if loop is not None:
            m.loops.pop()
    return signal if signal in {RETURN, RAISE} else None


EXECUTE.update({ast.For: _for, ast.AsyncFor: _for, ast.While: _while})
