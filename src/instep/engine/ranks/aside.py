"""What is kept out of a reduction of FSDP's: other optimizers' gradients, and hooks of the user's.

FSDP calls what `register_post_accumulate_grad_hook` was given in the middle of its reductions. One
that raises there leaves the other ranks in the next reduction until the time of the group is over,
so that they are put aside meanwhile. What a hook raises is kept until all ranks hear of it.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from instep.engine.ranks.exchange import last_word
from instep.engine.ranks.headers import Kind, Said, agreed, mark, ranks_that
from instep.errors import said_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from instep.engine.ranks.together import Together
    from instep.errors import WindowError

RAISED = float(2**20)
"""What a rank adds to a sum whose hook has raised; more than there are ranks."""

Hooks = list[tuple[Any, dict[Any, Any]]]
"""Sharded parameters, each with its hooks."""


@contextlib.contextmanager
def hooks_of(records: Iterable[Any]) -> Iterator[Hooks]:
    """Let nobody call the hooks of these parameters in here; yield them.

    records: what FSDP knows of each parameter.
    """
    found: Hooks = []
    for record in records:
        registered = getattr(record.sharded_param, "_post_accumulate_grad_hooks", None)
        if registered:
            found.append((record.sharded_param, dict(registered)))
            registered.clear()
    try:
        yield found
    finally:
        for parameter, hooks in found:
            parameter._post_accumulate_grad_hooks.update(hooks)  # noqa: SLF001


def called(found: Hooks) -> BaseException | None:
    """Call hooks of parameters that have a gradient now; return what one of them has raised."""
    try:
        for parameter, hooks in found:
            for hook in hooks.values() if parameter.grad is not None else ():
                hook(parameter)
    except BaseException as error:  # noqa: BLE001 -- raised when the others have heard of it
        return error
    return None


class HookError(Exception):
    """A hook has raised on some rank, as all have heard at once; `own` is what this rank's has."""

    def __init__(self, own: BaseException | None) -> None:
        super().__init__()
        self.own = own


def told(together: Together, own: BaseException | None, what: str) -> BaseException:
    """Tell the others what a hook of this rank has raised; return what this rank raises for all."""
    said = Said(Kind.READY) if own is None else last_word(said_of(own))
    heard = together.hear(said, what)
    together.is_in_step = True
    error = own or _raised_elsewhere(heard)
    mark(error)
    return error


def _raised_elsewhere(heard: Sequence[Said]) -> WindowError:
    """Return what the ranks raise whose own hooks have not."""
    flags = [said.kind is Kind.FAILED for said in heard]
    reasons = "; ".join(
        f"rank {rank}: {said.about.rstrip('.')}" for rank, said in enumerate(heard) if flags[rank]
    )
    return agreed(
        f"a hook on a sharded parameter raised an error on {ranks_that(flags)}.",
        why=f"{reasons}. The gradients of all ranks are added up then, and no update is made of a "
        "part of them. The window was thrown away on all ranks.",
        fix="mend the hook (register_post_accumulate_grad_hook); the output of that rank has the "
        "whole error.",
        more="ranks",
    )


@contextlib.contextmanager
def gradients_of(params: Sequence[Any]) -> Iterator[None]:
    """Keep gradients of other optimizers out of a reduction."""
    held = [(p._unsharded_param, p._unsharded_param.grad) for p in params]  # noqa: SLF001
    for whole, _ in held:
        whole.grad = None
    try:
        yield
    finally:
        for whole, gradient in held:
            whole.grad = gradient
