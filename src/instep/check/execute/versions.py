"""Comparisons with a version of torch: whoever has a current one is past those of long ago."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from instep.check.execute.machine import Machine
    from instep.check.execute.program import Module, Scope

_LONG_AGO = (2, 0)
"""Up to which a version is old: a branch for what is older is gone through by nobody any more,
unless the project says that it is for such a torch.
"""


def of_torch(m: Machine, node: ast.Compare, scope: Scope) -> bool | None:
    """Return what a comparison with a version of long ago gives; None if it is none.

    It may be written as `torch.__version__ < "1.6"`, or with both sides in a call that parses them.
    """
    asked = scope.module.read(_asked, node)
    if asked is None:
        return None
    is_newer, old = asked
    torch = m.project.torch_for(scope.module)
    return None if torch is not None and torch < old else is_newer


def _asked(node: ast.AST, _module: Module) -> tuple[bool, tuple[int, int]] | None:
    """Return whether a test asks for something newer than a version, and than which."""
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        return None
    left, right = _inner(node.left), _inner(node.comparators[0])
    is_left = _is_torch(left)
    if not is_left and not _is_torch(right):
        return None
    old = _version(right if is_left else left)
    if old is None or old > _LONG_AGO:
        return None
    if isinstance(node.ops[0], ast.Gt | ast.GtE):
        return is_left, old
    return (not is_left, old) if isinstance(node.ops[0], ast.Lt | ast.LtE) else None


def _inner(node: ast.expr) -> ast.expr:
    """Return what a call such as `version.parse(...)` is given."""
    if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
        return node.args[0]
    return node


def _is_torch(node: ast.expr) -> bool:
    is_version = isinstance(node, ast.Attribute) and node.attr == "__version__"
    return is_version and getattr(getattr(node, "value", None), "id", None) == "torch"


def _version(node: ast.expr) -> tuple[int, int] | None:
    text = node.value if isinstance(node, ast.Constant) else None
    parts = text.split(".")[:2] if isinstance(text, str) else []
    if len(parts) != 2 or not all(part.isdecimal() for part in parts):
        return None
    return int(parts[0]), int(parts[1])
