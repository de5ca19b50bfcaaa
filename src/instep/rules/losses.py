"""Losses as the source writes them: what is backpropagated, and where it is divided."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from instep.rules.counting import divisions
from instep.rules.edits import replace
from instep.rules.spelling import called, dividend, receiver
from instep.trace.trees import walk

if TYPE_CHECKING:
    from instep.rules.edits import Edits
    from instep.rules.source import Source

_ROUNDS = 3  # assignments between a division and its backward


def backpropagated(call: ast.Call) -> ast.expr | None:
    """Return the loss of a call: of `loss.backward()`, `scaler.scale(loss).backward()` and
    `accelerator.backward(loss)`.
    """
    if called(call) not in {"backward", "manual_backward"}:
        return None
    if call.args:
        return None if isinstance(call.args[0], ast.Starred) else call.args[0]
    on = receiver(call)
    if isinstance(on, ast.Call) and called(on) in {"scale", "scale_loss"} and on.args:
        return on.args[0]
    return on


def divided(source: Source, call: ast.Call, divisor: str) -> Edits | None:
    """Divide the loss of a backward, where it is backpropagated: what is logged stays as it is."""
    loss = backpropagated(call)
    if loss is None:
        return None
    whole = f"{dividend(loss, source.code(loss))} / {divisor}"
    if loss is receiver(call) and not source.is_bracketed(loss):
        whole = f"({whole})"
    return replace(loss, whole)


def loss_divisors(source: Source, loop: ast.AST, number: ast.expr) -> list[ast.expr]:
    """Return the divisors in a loop that read like a number and that a backward feels."""
    found = divisions(loop, number)
    calls = [node for node in walk(loop) if isinstance(node, ast.Call)]
    losses = [loss for loss in map(backpropagated, calls) if loss is not None]
    names = _flows_into(source, loop, losses)
    return [divisor for divisor in found if _is_felt(source, divisor, names)]


def _flows_into(source: Source, loop: ast.AST, losses: list[ast.expr]) -> set[str]:
    names = {name for loss in losses for name in _names(source, loss)}
    for _ in range(_ROUNDS):
        for node in walk(loop):
            if isinstance(node, ast.Assign) and _targets(source, node) & names:
                names |= set(_names(source, node.value))
    return names


def _names(source: Source, node: ast.AST) -> list[str]:
    return [source.code(n) for n in walk(node) if isinstance(n, ast.Name | ast.Attribute)]


def _targets(source: Source, statement: ast.stmt) -> set[str]:
    targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
    return {source.code(target) for target in targets if target is not None}


def _is_felt(source: Source, divisor: ast.expr, names: set[str]) -> bool:
    statement = source.statement(divisor)
    if statement is None or ".item()" in source.code(statement):
        return False
    if isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign) and names:
        return bool(_targets(source, statement) & names)
    # In the backward itself, or handed to a helper that does it.
    return "backward" in source.code(statement) or "loss" in source.code(statement).lower()
