"""Mends of a window's size: what closes it, and what its losses are divided by."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from instep.rules.counting import count_of, enumerated, pieces, shift_of
from instep.rules.edits import insert, replace, replace_bracketed
from instep.rules.gates import gate_of
from instep.rules.losses import loss_divisors
from instep.rules.mending import loop_apart, offer
from instep.rules.moving import meetings, sites
from instep.rules.naming import means_same
from instep.rules.restoring import restored
from instep.rules.spelling import operand, same
from instep.trace.trees import walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.rules.counting import Count
    from instep.rules.edits import Edits
    from instep.rules.finding import Fix
    from instep.rules.gates import Gate
    from instep.rules.source import Source

_SIZES = ("size", "window_size")


def window_sizes(source: Source, backward: ast.stmt, step: ast.stmt) -> Iterator[str]:
    """Give the number of micro-batches of a window as the source spells it, best first: what its
    gate compares with, then the rounds of a loop that is around the backward and not the step.

    Both may be in helpers: what counts is where the calls of these stand.
    """
    rounds: list[str] = []
    for inner, outer in meetings(source, backward, step):
        loops = [loop for site in inner[:-1] for loop in source.loops(site)]
        apart = loop_apart(source, inner[-1], outer[-1])
        loops += [] if apart is None else [apart]
        if loops:
            size, over = pieces(source, loops[-1]), getattr(loops[-1], "iter", backward)
            rounds += [size] if size and means_same(source, over, backward) else []
            continue
        for site in outer:
            gate = gate_of(source, site)
            if gate is not None and means_same(source, gate.number, backward):
                yield operand(gate.number, source.code(gate.number))
    yield from rounds


def close_last_window(source: Source, step: ast.stmt) -> Iterator[Fix]:
    """Step at the end of an epoch, too, and divide the short window by its own size."""
    if "IterableDataset" in source.text:
        return  # a loader over one need not have a length
    step, gate = _gated(source, step)
    if gate is None:
        return
    header: Edits = ()
    counted = count_of(source, gate, step)
    if counted is None and (named := enumerated(source, step)) is not None:
        counted, header = named
    if counted is None or counted.length is None:
        return
    sizes, unsure = _sized(source, gate, counted)
    test = _or_last(source, gate, counted)
    close = "step after the last micro-batch of an epoch as well"
    divide = "divide the last window by its own size"
    if unsure is not None:
        divide += f" (look at `{unsure}`, which reckons with the size of a full one)"
    is_safe = unsure is None
    if test and sizes:
        yield from offer(f"{close}, and {divide}", header, test, sizes, is_safe=is_safe)
    if test:
        yield from offer(close, header, test)
    if sizes:
        yield from offer(divide, header, sizes, is_safe=is_safe)


def count_from_one(source: Source, step: ast.stmt) -> Iterator[Fix]:
    """Make a gate pass after n micro-batches."""
    step, gate = _gated(source, step)
    if gate is None:
        return
    if gate.kind == "threshold":
        match gate.asked:
            case ast.Compare(left=left, ops=[ast.Gt()], comparators=[right]):
                test = f"{source.code(left)} >= {source.code(right)}"
                yield from offer("step at the n-th micro-batch", replace(gate.asked, test))
        yield from _restart_at_zero(source, gate, step)
        return
    counted = count_of(source, gate, step)
    if counted is None:
        return
    shift = shift_of(gate.counter, counted.counter)
    title = "step at the last micro-batch of each window"
    if shift == 0 and counted.start == 0:
        one_more = f"({counted.counter} + 1)"
        if source.is_bracketed(gate.counter):
            one_more = one_more[1:-1]
        whole = _without_first(source, gate, counted.counter, one_more)
        if whole is not None:
            yield from offer(title, whole)
        yield from offer(title, replace(gate.counter, one_more))
    elif shift == 1 and counted.start == 1:
        yield from offer(title, replace_bracketed(source, gate.counter, counted.counter))


def _gated(source: Source, step: ast.stmt) -> tuple[ast.stmt, Gate | None]:
    """Return the gate of a step, which may stand around the call of the function it is in."""
    for site in sites(source, step):
        gate = gate_of(source, site)
        if gate is not None:
            return site, gate
    return step, None


def _restart_at_zero(source: Source, gate: Gate, step: ast.stmt) -> Iterator[Fix]:
    counter = source.code(gate.counter)
    for node in walk(source.scope(step)):
        match node:
            case ast.Assign(targets=[target], value=ast.Constant(value=1) as start):
                if source.code(target) == counter:
                    yield from offer(f"count `{counter}` from 0", replace(start, "0"))


def _without_first(source: Source, gate: Gate, counter: str, one_more: str) -> Edits | None:
    """Drop the `i > 0` that keeps a gate shut at the first batch, which no longer is its place."""
    match gate.test:
        case ast.BoolOp(op=ast.And(), values=[one, other]):
            rest = other if one is gate.asked else one
        case _:
            return None
    match rest:
        case (
            ast.Compare(left=ast.Name(id=name), ops=[ast.Gt() | ast.NotEq()]) | ast.Name(id=name)
        ) if name == counter and gate.asked in gate.test.values:
            pass
        case _:
            return None
    asked, part = source.code(gate.asked), source.code(gate.counter)
    return replace(gate.test, asked.replace(part, one_more, 1))


def _or_last(source: Source, gate: Gate, counted: Count) -> Edits | None:
    index = counted.counter if counted.start == 1 else f"{counted.counter} + {1 - counted.start}"
    if counted.start > 1:
        index = f"{counted.counter} - {counted.start - 1}"
    last = ast.parse(f"{index} == {counted.length}", mode="eval").body
    if any(same(last, part) for part in walk(gate.test)):
        return None
    asked = source.code(gate.asked)
    if gate.is_passed:
        test = f"{asked} or {index} == {counted.length}"
    else:
        test = f"{asked} and {index} != {counted.length}"
    parent = source.parent(gate.asked)
    joins = ast.Or if gate.is_passed else ast.And
    fits = isinstance(parent, ast.BoolOp) and isinstance(parent.op, joins)
    is_inner = isinstance(parent, ast.BoolOp | ast.UnaryOp) and gate.asked is not gate.test
    if is_inner and not fits and not source.is_bracketed(gate.asked):
        test = f"({test})"
    return replace(gate.asked, test)


def _sized(source: Source, gate: Gate, counted: Count) -> tuple[Edits, str | None]:
    """Divide the losses of a window by its own size, which gets a name if there is one to give, and
    multiply by it what makes them whole again.

    Beside the edits: code that does so where no edit can follow it.
    """
    found = loss_divisors(source, counted.loop, gate.number)
    if not found:
        return (), None
    after = restored(source, counted.loop, gate.number, found)
    size = _size(source, gate, counted)
    taken = {n.id for n in walk(source.scope(counted.loop)) if isinstance(n, ast.Name)}
    name = next((name for name in _SIZES if name not in taken), None)
    first = source.child_of(counted.loop, found[0])
    uses = (*found, *after.factors)
    if name is not None and isinstance(first, ast.stmt):
        named = insert(source, first, f"{name} = {size}")
        if named is not None:
            edits = (replace_bracketed(source, use, name) for use in uses)
            return (*named, *(edit for each in edits for edit in each)), after.unsure
    return tuple(edit for use in uses for edit in replace(use, size)), after.unsure


def _size(source: Source, gate: Gate, counted: Count) -> str:
    """Spell the size of the window that a batch is in, which is exact for the last one, too."""
    number = operand(gate.number, source.code(gate.number))
    index = counted.counter if counted.start == 0 else f"({counted.counter} - {counted.start})"
    return f"min({source.code(gate.number)}, {counted.length} - {index} // {number} * {number})"
