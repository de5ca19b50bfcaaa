"""Context managers of torch and of the standard library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.check.execute.values import Context

if TYPE_CHECKING:
    from instep.check.execute.arguments import Call
    from instep.check.execute.machine import Machine
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
