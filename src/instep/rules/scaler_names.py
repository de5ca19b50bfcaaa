"""How the source names the scaler of a loop, and unscaling as code."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from instep.rules.mending import optimizer_name, scaler_name, steps_of
from instep.rules.spelling import called, receiver
from instep.trace.trees import walk

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from instep.rules.source import Source
    from instep.trace import Place


def scaler_near(source: Source, node: ast.AST) -> str | None:
    """Return what scales losses: `scaler` of a `scaler.scale(loss)` in the function of a node.

    One that is an attribute may do so in another method.
    """
    names = set(_receivers(source, source.scope(node), "scale"))
    if not names:
        anywhere = _receivers(source, source.tree, "scale")
        names = {name for name in anywhere if name.startswith("self.")}
    return names.pop() if len(names) == 1 else None


def updates_scaler(source: Source, scaler: str, node: ast.AST) -> bool:
    """Whether `scaler.update()` is called where `scaler_near` looks."""
    within = source.tree if scaler.startswith("self.") else source.scope(node)
    return scaler in _receivers(source, within, "update")


def unscaling(
    source: Source, clip: ast.stmt, steps: Sequence[Place | None], others: Sequence[str]
) -> Iterator[str]:
    """Give code that unscales, before a clip, what these steps use.

    `others` are names of optimizers that the clip may reach as well. Where the step stands behind
    a test of the scaler and the clip does not, so does the unscaling.
    """
    for place in steps:
        optimizer, scaler = optimizer_name(source, place), scaler_name(source, place)
        step = source.statement_at(place)
        if optimizer is None or scaler is None or step is None:
            continue
        names = [optimizer, *(o for o in others if o != optimizer and steps_of(source, o, clip))]
        code = "\n".join(f"{scaler}.unscale_({name})" for name in names)
        guard = _guard(source, step, scaler)
        if guard is not None and guard not in source.ancestors(clip):
            first = source.indent(guard.body[0])
            inner = first.removeprefix(source.indent(guard)) or "    "
            yield f"if {source.code(guard.test)}:\n{inner}" + code.replace("\n", f"\n{inner}")
        yield code


def _guard(source: Source, step: ast.stmt, scaler: str) -> ast.If | None:
    for condition in source.conditions(step):
        tested = {source.code(n) for n in walk(condition.test) if isinstance(n, ast.expr)}
        if scaler in tested and source.child_of(condition, step) in condition.body:
            return condition
    return None


def _receivers(source: Source, within: ast.AST, method: str) -> Iterator[str]:
    for call in walk(within):
        if isinstance(call, ast.Call) and called(call) == method:
            on = receiver(call)
            if on is not None:
                yield source.code(on)
