"""Threads that are not watched: what they train is none of our business."""

from __future__ import annotations

import weakref
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch.nn import Parameter

    from instep.watching.recorder import Recorder
    from instep.watching.threads import Threads


def leave_out(recorder: Recorder, threads: Threads) -> None:
    """Let a recorder leave alone what other threads train, as soon as there are any."""
    book, strangers = recorder.book, threads.strangers
    direct = book.grown.append
    left: dict[int, Any] = {}  # parameters, by id, as long as they live

    def grew(parameter: Parameter) -> None:
        if get_ident() not in strangers:
            direct(parameter)
        elif id(parameter) not in left:
            left[id(parameter)] = weakref.ref(parameter, partial(_drop, left, id(parameter)))
            held = book.parameters.get(id(parameter))
            if held is not None:
                forget(recorder, (weak() for weak in book.owners(held)))

    def met(thread: int) -> None:
        # Not from the beginning on: a function takes longer than the method of a deque.
        if book.grew is not grew:
            book.grew = grew
            for held in list(book.parameters.values()):
                _replace_hooks(held.parameter, direct, grew)
        mine = [made.weak() for made in list(book.optimizers.values()) if made.thread == thread]
        forget(recorder, mine)

    threads.on_stranger = met
    threads.goes_back = lambda: recorder.is_going_back
    threads.backwards = lambda: (
        None if any(recorder.series.updates.values()) else recorder.fresh.total()
    )
    book.alone = threads.alone


def forget(recorder: Recorder, optimizers: Iterable[Any]) -> None:
    """Look no more at gradients of optimizers that another thread uses."""
    for optimizer in optimizers:
        name = None if optimizer is None else recorder.book.met(optimizer)
        if name is not None:
            recorder.witnesses.forget(name)


def _drop(left: dict[int, Any], key: int, dead: object) -> None:
    del dead
    left.pop(key, None)


def _replace_hooks(parameter: Parameter | None, old: Any, new: Any) -> None:
    hooks = getattr(parameter, "_post_accumulate_grad_hooks", None) or {}
    for key, hook in list(hooks.items()):
        if hook == old:
            hooks[key] = new
