"""Context managers of torch and of the standard library."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from instep.check.execute.values import Context
from instep.trace.trees import walk

if TYPE_CHECKING:
    from instep.check.execute.arguments import Call
    from instep.check.execute.machine import Machine
    from instep.check.execute.program import Module
    from instep.check.execute.values import Value


def no_grad(m: Machine, off: int = 1) -> Context:
    """Return a context in which no graph is made."""

    def enter() -> None:
        m.no_grad += off

    def leave() -> None:
        m.no_grad -= off

    return Context(enter, leave)


def plain(_m: Machine, _call: Call) -> Value:
    """Return a context that changes nothing."""
    return Context()


def autocast(m: Machine, call: Call) -> Value:
    """Follow `autocast(...)`: gradients are the same in it, but it can be asked for."""
    # The first argument of the older ones, the third of `torch.autocast`.
    given = call.args[2:3] or [value for value in call.args[:1] if isinstance(value, bool)]
    enabled = call.kwargs.get("enabled", given[0] if given else True)

    def enter() -> None:
        m.casts.append(enabled if isinstance(enabled, bool) else None)

    def leave() -> None:
        m.casts.pop()

    return Context(enter, leave)


def is_autocast_enabled(m: Machine, call: Call) -> Value:
    """Follow `torch.is_autocast_enabled()`: a function that casts by itself does so in its blocks
    alone; another one may be called from such a block.
    """
    module = call.scope.module
    around = call.scope.code if call.scope.code is not None else module.tree
    known = m.casts[-1] if m.casts else False if module.read(_casts, around) else None
    return call.unknown(m) if known is None else known


def _casts(code: ast.AST, module: Module) -> bool:
    blocks = (part for part in walk(code) if isinstance(part, ast.With))
    return any(
        "autocast" in module.spelled(i.context_expr) for with_ in blocks for i in with_.items
    )


def without_grad(m: Machine, _call: Call) -> Value:
    """Follow `torch.no_grad()`."""
    return no_grad(m)


def set_grad_enabled(m: Machine, call: Call) -> Value:
    """Follow `torch.set_grad_enabled(flag)`."""
    first = call.args[0] if call.args else True
    return no_grad(m, off=first is False or getattr(first, "holds", True) is False)


def enable_grad(m: Machine, _call: Call) -> Value:
    """Follow `torch.enable_grad()`."""
    before = m.no_grad

    def enter() -> None:
        m.no_grad = 0

    def leave() -> None:
        m.no_grad = before

    return Context(enter, leave)


def exit_stack(m: Machine, call: Call) -> Value:
    """Follow `ExitStack()`."""
    return Context(lambda: call.unknown(m, "stack"))


def same_or_plain(_m: Machine, call: Call) -> Value:
    """Follow what gives back what it is given, and is a context without."""
    return call.args[0] if call.args else Context()
