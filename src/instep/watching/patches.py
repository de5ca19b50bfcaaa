"""Replacing attributes of other people's modules and classes, and putting them back."""

from __future__ import annotations

import functools
import threading
from contextlib import contextmanager
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar

from torch._C._dynamo import eval_frame
from torch.compiler import is_compiling

from instep.watching.onlookers import dispatching, is_traced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType

_MISSING = object()
_Foreign: type = getattr(threading, "_DummyThread", type(None))
compiler: Callable[[], object] = getattr(eval_frame, "get_eval_frame_callback", lambda: None)
"""What compiles the code that is called next, if anything does.

A seam is blind where this is something, or `is_compiling()` or `is_traced()`: whatever the watcher
did there would be compiled as well, or would break the user's graph. Each seam asks in its own
words, because a call of a function that asks takes longer than the answer.
"""
_PASSED_OVER = " (for warnings, as if in importlib._bootstrap)"
_F = TypeVar("_F", bound="Callable[..., Any]")
_T = TypeVar("_T")


def uncompiled(function: _F) -> _F:
    """Have the compiler leave a function of ours alone where it is called from what was compiled.

    It may still be traced into: a break in the user's graph would be worse.
    """
    # As `torch._dynamo.eval_frame.skip_code` does, whose import takes seconds.
    inner: Any = eval_frame
    if hasattr(inner, "set_code_exec_strategy"):
        action = inner._FrameAction  # noqa: SLF001
        strategy = inner._FrameExecStrategy(action.SKIP, action.DEFAULT)  # noqa: SLF001
        inner.set_code_exec_strategy(function.__code__, strategy)
    return function


def passed_over(function: _F) -> _F:
    """Have warnings count without a function of ours that stands between torch and its caller.

    torch warns at the line of whoever has called it, so many frames above its own. Python leaves
    out of that count what has these two words in the name of its file, as imports have, and knows
    no other way.
    """
    inner: Any = function
    inner.__code__ = _renamed(inner.__code__)
    return function


@functools.cache
def _renamed(code: CodeType) -> CodeType:
    if code.co_filename.endswith(_PASSED_OVER):
        return code
    return code.replace(co_filename=code.co_filename + _PASSED_OVER)


class Patches:
    """What was replaced and hooked. `undo` takes it back in the reverse order."""

    def __init__(self) -> None:
        self._is_on = True
        self._home = get_ident()
        self.is_settled = False
        """Whether the thread that is watched has gone backward."""
        self.strangers: set[int] = set()
        """Threads that are not watched."""
        self.on_stranger: Callable[[int], None] = lambda _: None
        """Called with each of them when it is met, before it does anything."""
        self._gate = threading.RLock()  # what ends in here may train
        self._going: set[int] = set()
        """Those that go backward now."""
        self._undo: list[Callable[[], None]] = []

    @property
    def is_on(self) -> bool:
        """Whether anything is seen here. If not, what was replaced does what it always did.

        One thread is watched. In another one a gradient may be replaced at any moment, since a
        backward holds no lock of Python's, and whoever looks at it then reads what is gone.
        """
        return self._is_on and (get_ident() == self._home or self._has_come())

    @is_on.setter
    def is_on(self, value: bool) -> None:
        self._is_on = value

    @property
    def is_elsewhere(self) -> bool:
        """Whether this is a thread that is not watched."""
        return self._is_on and not self.is_on

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Keep other threads from going backward in here; say whether none of them does so already.

        They wait for it, and nobody ever waits for them.
        """
        with self._gate:
            is_mine = not self.is_settled or get_ident() == self._home
            yield is_mine and not self._going

    def settles(self) -> bool:
        """Have the first thread that goes backward be watched; say whether this one is."""
        with self._gate:
            if not self.is_settled:
                self._home, self.is_settled = get_ident(), True
        return self.is_on

    @passed_over
    def unseen(self, backward: Callable[[], _T]) -> _T:
        """Go backward where nothing is seen; in a thread that is not watched, when it may."""
        here = get_ident()
        if here in self._going or not self.is_elsewhere:  # or a backward inside of a backward
            return backward()
        with self._gate:
            self._going.add(here)
        try:
            return backward()
        finally:
            self._going.discard(here)

    def _has_come(self) -> bool:
        """Say whether this thread is watched: autograd's own are, and so is the first that trains;
        when it has ended, the next one.
        """
        here = get_ident()
        # Others, such as those of a device in a backward, only look like threads of Python's.
        alive = {each.ident for each in threading.enumerate() if type(each) is not _Foreign}
        if here not in alive:
            return True
        with self._gate:
            if not self.is_settled or self._home not in alive:
                self.strangers.discard(here)
                self._home = here
                return True
        if here not in self.strangers:
            self.strangers.add(here)
            self.on_stranger(here)
        return False

    def replace(self, owner: Any, name: str, around: Callable[..., Any]) -> None:
        """Put `around(original, *args, **kwargs)` in place of an attribute.

        An inherited one is replaced for this owner alone. Code that is compiled finds the original.
        """
        passed_over(around)

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def replaced(*args: Any, **kwargs: Any) -> Any:
                if is_compiling() or compiler() is not None or not self.is_on:
                    return original(*args, **kwargs)
                if dispatching() and is_traced():
                    return original(*args, **kwargs)
                return around(original, *args, **kwargs)

            return replaced

        self.put(owner, name, make)

    def put(self, owner: Any, name: str, make: Callable[..., Callable[..., Any]]) -> None:
        """Put what `make(original)` returns in place of an attribute.

        This is `replace` without a call in between, for what is done at every update: it has to
        see to it by itself that it does nothing if the watch is not on, or where it is blind.
        """
        inherited = name not in vars(owner)
        original = getattr(owner, name)
        replaced = functools.wraps(original)(uncompiled(passed_over(make(original))))
        setattr(owner, name, replaced)

        def undo() -> None:
            # Somebody who replaced it after us keeps his: he calls ours, which still works.
            if vars(owner).get(name, _MISSING) is not replaced:
                return
            if inherited:
                delattr(owner, name)
            else:
                setattr(owner, name, original)

        self._undo.append(undo)

    def later(self, undo: Callable[[], None]) -> None:
        """Have something called at the end."""
        self._undo.append(undo)

    @property
    def is_held(self) -> bool:
        """Whether anything is left to put back."""
        return bool(self._undo)

    def undo(self) -> None:
        """Put everything back; after an error, call it again for the rest."""
        self.is_on = False
        while self._undo:
            self._undo.pop()()
