"""Mends of a window's size: what closes it, and what its losses are divided by."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from instep.rules.counting import count_of, divisions, enumerated, pieces, shift_of
from instep.rules.edits import replace
from instep.rules.gates import gate_of
from instep.rules.mending import loop_apart, offer
from instep.rules.spelling import called, dividend, operand, receiver, same

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.rules.counting import Count
    from instep.rules.edits import Edits
    from instep.rules.finding import Fix
    from instep.rules.gates import Gate
    from instep.rules.source import Source


def divided(source: Source, call: ast.Call, divisor: str) -> Edits | None:
    """Divide the loss of a backward, where it is backpropagated: what is logged stays as it is."""
    loss = backpropagated(call)
    if loss is None:
        return None
    whole = f"{dividend(loss, source.code(loss))} / {divisor}"
    stands_before_dot = isinstance(call.func, ast.Attribute) and loss is call.func.value
    if stands_before_dot and not source.is_bracketed(loss):
        whole = f"({whole})"
    return replace(loss, whole)


def backpropagated(call: ast.Call) -> ast.expr | None:
    """Return the loss of a call: of `loss.backward()`, `scaler.scale(loss).backward()` and
    `accelerator.backward(loss)`.
    """
    first = call.args[0] if call.args and not isinstance(call.args[0], ast.Starred) else None
    if called(call) in {"backward", "manual_backward"}:
        on = receiver(call)
        if first is not None:
            return first
        if isinstance(on, ast.Call) and called(on) in {"scale", "scale_loss"} and on.args:
            return on.args[0]
        return on
    return None


def window_size(source: Source, backward: ast.stmt, step: ast.stmt) -> str | None:
    """Return the number of micro-batches of a window as the source spells it."""
    if (loop := loop_apart(source, backward, step)) is not None:
        return pieces(source, loop)
    gate = gate_of(source, step)
    return None if gate is None else operand(gate.number, source.code(gate.number))


def close_last_window(source: Source, step: ast.stmt) -> Iterator[Fix]:
    """Step at the end of an epoch, too, and divide the short window by its own size."""
    gate = gate_of(source, step)
    if gate is None:
        return
    header: Edits = ()
    counted = count_of(source, gate, step)
    if counted is None and (named := enumerated(source, step)) is not None:
        counted, header = named
    if counted is None or counted.length is None:
        return
    size = _size(source, gate, counted)
    found = [d for d in divisions(counted.loop, gate.number) if _is_of_loss(source, d)]
    sizes = tuple(edit for divisor in found for edit in replace(divisor, size))
    test = _or_last(source, gate, counted)
    close = "step after the last micro-batch of an epoch as well"
    divide = "divide the last window by its own size"
    if test and sizes:
        yield from offer(f"{close}, and {divide}", header, test, sizes)
    if test:
        yield from offer(close, header, test)
    if sizes:
        yield from offer(divide, header, sizes)


def count_from_one(source: Source, step: ast.stmt) -> Iterator[Fix]:
    """Make a gate pass after n micro-batches."""
    gate = gate_of(source, step)
    if gate is None:
        return
    if gate.kind == "threshold":
        match gate.asked:
            case ast.Compare(left=left, ops=[ast.Gt()], comparators=[right]):
                test = f"{source.code(left)} >= {source.code(right)}"
                yield from offer("step at the n-th micro-batch", replace(gate.asked, test))
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
        yield from offer(title, replace(gate.counter, counted.counter))


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
    if any(same(last, part) for part in ast.walk(gate.test)):
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


def _size(source: Source, gate: Gate, counted: Count) -> str:
    """Spell the size of the window that a batch is in, which is exact for the last one, too."""
    number = operand(gate.number, source.code(gate.number))
    index = counted.counter if counted.start == 0 else f"({counted.counter} - {counted.start})"
    return f"min({source.code(gate.number)}, {counted.length} - {index} // {number} * {number})"


def _is_of_loss(source: Source, divisor: ast.expr) -> bool:
    statement = source.statement(divisor)
    words = "" if statement is None else source.code(statement).lower()
    return "loss" in words or "backward" in words or not isinstance(divisor, ast.Constant)
