"""Threads that are not watched: what they train is none of our business.

A backward holds no lock of Python's. While it runs in one thread, a gradient that another thread
looks at may be replaced and gone, and the process with it.
"""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.nn import Parameter

    from instep.watching.book import Book
    from instep.watching.recorder import Recorder


def leave_out(recorder: Recorder, strangers: set[int], thread: int) -> None:
    """Let go of what a thread has made before it was known to be a stranger, and of what grows in
    all of them.
    """
    book = recorder.book
    _leave_growing(book, strangers)
    for made in list(book.optimizers.values()):
        optimizer = made.weak()
        name = None if optimizer is None or made.thread != thread else book.met(optimizer)
        if name is not None:
            recorder.witnesses.forget(name)


def _leave_growing(book: Book, strangers: set[int]) -> None:
    """Have a book take no note of what grows in some threads, also those that are added later.

    Not from the beginning on: a function of Python's takes longer than the method of a deque.
    """
    direct = book.grown.append
    if book.grew != direct:
        return

    def grew(parameter: Parameter) -> None:
        if get_ident() not in strangers:
            direct(parameter)

    book.grew = grew
    for held in list(book.parameters.values()):
        hooks = getattr(held.parameter, "_post_accumulate_grad_hooks", None) or {}
        for key, hook in list(hooks.items()):
            if hook == direct:
                hooks[key] = grew
