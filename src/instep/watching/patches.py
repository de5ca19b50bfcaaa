"""Replacing attributes of other people's modules and classes, and putting them back."""

from __future__ import annotations

import functools
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar

import torch.compiler
from torch._C._dynamo import eval_frame

from instep.watching.onlookers import dispatching, is_traced
from instep.watching.threads import Threads
from instep.watching.warned import passed_over

if TYPE_CHECKING:
    from collections.abc import Callable

_MISSING = object()
compiler: Callable[[], object] = getattr(eval_frame, "get_eval_frame_callback", lambda: None)
"""What compiles the code that is called next, if anything does.

A seam is blind where this is something, or `compiling()`, `flags` or `is_traced()` say so: whatever
the watcher did there would be compiled as well, or would break the user's graph. Each seam asks in
its own words, because a call of a function that asks takes longer than the answer.
"""


class _NoFlags:
    _is_compiling_flag = False


# `torch.compiler.is_compiling` is Dynamo's own answer and a flag: taken apart, because it makes two
# calls of it. Dynamo comes to no flag: for it the answer is known before.
compiling: Callable[[], bool] = torch.compiler.is_dynamo_compiling
flags: Any = torch.compiler
if not hasattr(flags, "_is_compiling_flag"):
    compiling, flags = torch.compiler.is_compiling, _NoFlags
_F = TypeVar("_F", bound="Callable[..., Any]")


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


class Patches:
    """What was replaced and hooked. `undo` takes it back in the reverse order."""

    def __init__(self) -> None:
        self.is_open = True
        """If not, what was replaced does what it always did, in whatever thread."""
        self.threads = Threads()
        self._undo: list[Callable[[], None]] = []

    @property
    def is_on(self) -> bool:
        """Whether anything is seen here. If not, what was replaced does what it always did."""
        threads = self.threads
        return self.is_open and (get_ident() == threads.home or threads.hears())

    @property
    def is_elsewhere(self) -> bool:
        """Whether this is a thread that is not watched."""
        return self.is_open and not self.is_on

    def replace(
        self, owner: Any, name: str, around: Callable[..., Any], *, in_all_threads: bool = False
    ) -> None:
        """Put `around(original, *args, **kwargs)` in place of an attribute.

        An inherited one is replaced for this owner alone. Code that is compiled finds the original.
        """
        passed_over(around)

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def replaced(*args: Any, **kwargs: Any) -> Any:
                if compiling() or compiler() is not None or flags._is_compiling_flag:  # noqa: SLF001
                    return original(*args, **kwargs)
                if not (self.is_open if in_all_threads else self.is_on):
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
        self.is_open = False
        while self._undo:
            self._undo.pop()()
