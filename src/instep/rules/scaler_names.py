"""How the source names the scaler of a loop."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from instep.rules.spelling import called, receiver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.rules.source import Source


def scaler_near(source: Source, node: ast.AST) -> str | None:
    """Return what scales losses in the function of a node: `scaler` of `scaler.scale(loss)`."""
    names = set(_receivers(source, node, "scale"))
    return names.pop() if len(names) == 1 else None


def updates_scaler(source: Source, scaler: str, node: ast.AST) -> bool:
    """Whether the function of a node calls `scaler.update()`."""
    return scaler in _receivers(source, node, "update")


def _receivers(source: Source, node: ast.AST, method: str) -> Iterator[str]:
    for call in ast.walk(source.scope(node)):
        if isinstance(call, ast.Call) and called(call) == method:
            on = receiver(call)
            if on is not None:
                yield source.code(on)
