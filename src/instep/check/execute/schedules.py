"""Schedules whose first value may be skipped: it is that of a rest, or no other than the next."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from instep.check.execute import first_values
from instep.trace.trees import walk

if TYPE_CHECKING:
    from instep.check.execute.arguments import Call
    from instep.check.execute.program import Module

_LOSING = ("LambdaLR", "schedule_with_warmup", "get_constant_schedule")
"""What is in the names of those that may lose nothing."""


def is_skippable(path: str, call: Call) -> bool:
    """Say whether a schedule may lose nothing with its first value: it does not, or it is one of
    several that a function chooses from, and another one does not. `path` is what makes it, which
    the call may well know under another name.
    """
    code, module, node = call.scope.code, call.scope.module, call.node
    if isinstance(node, ast.Call) and (_loses_nothing(node, module) or _warms_up(path, call)):
        return True
    return code is not None and module.read(_chooses, code)


def _chooses(code: ast.AST, module: Module) -> bool:
    if not any(name in module.unit.text for name in _LOSING):
        return False  # without going through every node of the function
    return any(isinstance(node, ast.Call) and _loses_nothing(node, module) for node in walk(code))


def _loses_nothing(node: ast.Call, module: Module) -> bool:
    """Say whether a schedule is constant, or may begin at zero."""
    name = str(getattr(node.func, "attr", None) or getattr(node.func, "id", ""))
    if name == "LambdaLR":
        given = _argument(node, 1, "lr_lambda")
        each = given.elts if isinstance(given, ast.List | ast.Tuple) else [given]
        return any(first_values.may_be_skipped(one, module) for one in each)
    if _is_warm_up(name):
        given = _argument(node, 1, "num_warmup_steps")
        return given is not None and not (isinstance(given, ast.Constant) and not given.value)
    return name == "get_constant_schedule"


def _is_warm_up(name: str) -> bool:
    return name.startswith("get_") and "schedule_with_warmup" in name


def _warms_up(path: str, call: Call) -> bool:
    """Say whether a schedule may begin at zero by the values that it is given, some of which may
    come from a mapping.
    """
    if not _is_warm_up(path.rpartition(".")[2]):
        return False
    return call.get(1, "num_warmup_steps", default="given somewhere else") not in (0, None)


def _argument(node: ast.Call, at: int, name: str) -> ast.expr | None:
    by_name = (keyword.value for keyword in node.keywords if keyword.arg == name)
    return node.args[at] if at < len(node.args) else next(by_name, None)
