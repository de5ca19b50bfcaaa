"""Slots: where the gradients of fused layers are summed, and who may add to them.

A slot has a number, which is all that operators know of it. It is filled while a window is open.
"""

from __future__ import annotations

import contextlib
import enum
import itertools
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn

import torch
from torch import Tensor

from instep.errors import WindowError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Account:
    """Whose slots these are: whether one of its own backwards runs now."""

    def __init__(self) -> None:
        self.is_lent = False
        """Whether any of its slots is lent now."""
        self.is_adding = False
        self.task = -1
        """The last backward that was found to accumulate, by torch's number for it."""

    @contextlib.contextmanager
    def adding(self, loss: Tensor) -> Iterator[None]:
        """Let the backward of this loss add to slots."""
        self.is_adding = True
        node = loss.grad_fn
        # Known from the start, no layer has to ask the engine, which takes time.
        handle = None if node is None else node.register_prehook(self._begin)
        try:
            yield
        finally:
            self.is_adding = False
            if handle is not None:
                handle.remove()

    def _begin(self, _: object) -> None:
        self.task = _task()


class Slot(NamedTuple):
    """Where the gradient of a parameter is summed, and whom to tell that something was added."""

    gradient: Tensor
    reached: Callable[[], None]
    parameter: Tensor | None = None
    account: Account | None = None
    """None: whatever comes is added."""


NOWHERE = -1
"""The slot of a parameter that does not exist."""
_slots: dict[int, Slot] = {}
_numbers = itertools.count()


def new_slot() -> int:
    """Return a number for a slot; a parameter keeps it from window to window."""
    return next(_numbers)


def fill(number: int, slot: Slot | None) -> None:
    """Say where a slot leads, or that it leads nowhere now."""
    if slot is None:
        _slots.pop(number, None)
    else:
        _slots[number] = slot


class Note:
    """A hook of ours on a parameter: it looks at nothing but that there was a gradient."""


class Answer(enum.Enum):
    """What a backward does about the gradient of a parameter."""

    ADD = enum.auto()
    """Add it to its slot: a window's own backward."""
    GIVE = enum.auto()
    """Hand it to autograd, as every layer does: somebody else asks for it, or looks at it."""
    NONE = enum.auto()
    """Nothing: nobody asks for it."""


_runs: Callable[[Any], bool] = torch._C._will_engine_execute_node  # noqa: SLF001
_current: Callable[[], Any] = torch._C._current_autograd_node  # noqa: SLF001
_task: Callable[[], int] = torch._C._current_graph_task_id  # noqa: SLF001


def is_watched(parameter: Tensor) -> bool:
    """Whether hooks that are not ours wait for the gradient of a parameter."""
    if parameter._backward_hooks:  # noqa: SLF001 -- what Tensor.register_hook fills
        return True
    hooks = getattr(parameter, "_post_accumulate_grad_hooks", None) or {}
    return not all(isinstance(hook, Note) for hook in hooks.values())


def will_come(node: Any) -> bool | None:
    """Whether the backward that runs now comes to what accumulates the gradient of a parameter.

    In one that is limited to other parameters it does not. In `torch.autograd.grad` by this very
    parameter, which is None here, torch's engine refuses to say.
    """
    try:
        return _runs(node)
    except RuntimeError:
        return None


def answer(number: int, comes: Callable[[], bool | None]) -> Answer:
    """Return what the backward that runs now is to do about the gradient of a slot."""
    slot = slot_of(number)
    account, parameter = slot.account, slot.parameter
    if account is None or parameter is None:
        return Answer.ADD
    task = _task()
    if not account.is_adding or account.task != task:
        found = comes()
        if found is False:
            return Answer.NONE
        if found is None or not account.is_adding:
            return Answer.GIVE
        account.task = task
    return Answer.GIVE if is_watched(parameter) else Answer.ADD


def slot_of(number: int) -> Slot:
    """Return where a slot leads; raise if its window is over."""
    slot = _slots.get(number)
    return refuse_over() if slot is None else slot


def is_filled(number: int) -> bool:
    """Whether a slot leads somewhere now."""
    return number in _slots


class _Here:
    """Which parameters the backward comes to from the compiled function that it was in last."""

    last: ClassVar[tuple[tuple[int, int], dict[int, bool | None]]] = ((-1, -1), {})


def _comes_here(parameter: Tensor | None) -> bool | None:
    node = _current()
    key = (_task(), node._sequence_nr())  # noqa: SLF001 -- torch's own number for it
    seen = _Here.last
    if seen[0] != key:
        # Not the nodes: who holds one keeps the stream that it accumulates on.
        pairs = ((getattr(one, "variable", None), one) for one, _ in node.next_functions)
        seen = (key, {id(one): will_come(after) for one, after in pairs if one is not None})
        _Here.last = seen
    return seen[1].get(id(parameter))


def is_added(number: int) -> bool:
    """Whether a compiled backward adds to a slot; raise if it would have to hand the gradient on.

    A compiled backward cannot be told at run time to return something else.
    """
    if number == NOWHERE:
        return False
    found = answer(number, partial(_comes_here, slot_of(number).parameter))
    if found is Answer.GIVE and _is_part(number):
        return True
    if found is Answer.GIVE:
        raise WindowError(
            "something other than window.backward() asks for the gradient of a compiled, fused "
            "layer.",
            why="torch.autograd.grad by a weight, a plain backward inside a window, or a hook on a "
            "weight needs the gradient itself, and what is compiled adds it to the window's sums.",
            fix="call instep.unfuse(model), or leave the model uncompiled: there it works.",
            more="fast",
        )
    return found is Answer.ADD


_parts: list[None] = []


@contextlib.contextmanager
def in_parts() -> Iterator[None]:
    """Let `torch.autograd.grad` by parameters count as a part of the backward that calls it.

    It hands on what it gets to the same parameters, so that what is added to slots need not come.
    """
    _parts.append(None)
    try:
        yield
    finally:
        _parts.pop()


def _is_part(number: int) -> bool:
    account, parameter = slot_of(number).account, slot_of(number).parameter
    is_own = bool(_parts) and account is not None and account.is_adding
    return is_own and parameter is not None and not is_watched(parameter)


def refuse_over() -> NoReturn:
    """Raise, because a graph has outlived its window."""
    raise WindowError(
        "a backward through fused layers, of a graph from a window that is over.",
        why="inside a window, the layers of instep.fuse use its bf16 copy of the weights, and the "
        "window's update has written over that copy: the graph's gradient cannot be told any more.",
        fix="call window.backward() before the window ends; after instep.unfuse(model), graphs "
        "are PyTorch's own.",
        more="fast",
    )
