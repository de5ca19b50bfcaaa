"""The user's program, run in this process as Python itself would run it.

Nothing here imports torch: a program may set environment variables before it does.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib.util
import os
import sys
import threading
import traceback
import types
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any

from instep.errors import WatchError
from instep.watching.voice import say

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import CodeType, TracebackType

_OWN = __file__[: -len("watching/launch.py")]
_HIDDEN = tuple(f"{_OWN}{part}" for part in ("watching/", "commands/", "cli.py", "__main__.py"))
_FAILED = 1


@dataclass(frozen=True)
class Program:
    """What to run: a script by its path, or a module by its name."""

    name: str
    arguments: tuple[str, ...] = ()
    is_module: bool = False


class Ready:
    """A program that was found and can be run."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._load: Callable[[], CodeType]
        self.module = types.ModuleType("__main__")
        if "__annotations__" in vars(sys.modules["__main__"]):  # which Pythons have from the start
            vars(self.module)["__annotations__"] = {}
        if program.is_module:
            enter(program)
            self._find_module()
        else:
            self._find_script()
            enter(program)
        sys.argv = [self.first, *program.arguments]

    def run(self) -> None:
        """Run it as `__main__`; whatever it raises comes through."""
        # It stays there after the end: functions that it leaves behind may ask for it.
        sys.modules["__main__"] = self.module
        exec(self._load(), vars(self.module))  # noqa: S102  # this is what the user asked for

    def _find_script(self) -> None:
        self.first = self.program.name
        if self.first.endswith(".ipynb"):
            raise WatchError(
                f"{self.first!r} is a notebook, and cannot be run as a script.",
                why="instep watch runs a Python program; the cells of a notebook run in Jupyter.",
                fix="put `with instep.watch():` around the training in a cell of it.",
                more="watching",
            )
        # Joined and not resolved, as Python does it: neither links nor ".." are followed.
        file = os.path.join(os.getcwd(), self.program.name)  # noqa: PTH109, PTH118
        loader = SourceFileLoader("__main__", file)
        try:
            data = loader.get_data(file)
        except (OSError, ValueError) as error:
            raise WatchError(
                f"{self.program.name!r} cannot be read ({getattr(error, 'strerror', error)}).",
                why="the first word that is no option is the script to run.",
                fix="check the path; for a module, say -m NAME.",
                more="watching",
            ) from error
        self._load = lambda: compile(data, file, "exec", dont_inherit=True)
        self._name(None, loader, file)

    def _find_module(self) -> None:
        name = self.program.name
        spec = _spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name = f"{name}.__main__"
            spec = _spec(name)
        loader = None if spec is None else spec.loader
        get_code = getattr(loader, "get_code", None)
        if spec is None or get_code is None:
            raise WatchError(
                f"there is no module {name!r} to run.",
                why="-m takes a module, or a package with a __main__ module, that can be imported.",
                fix="check the name, and that this folder is the one it is imported from.",
                more="watching",
            )
        self.first = spec.origin or name
        self._load = lambda: get_code(spec.name)
        self._name(spec, loader, spec.origin)

    def _name(self, spec: ModuleSpec | None, loader: object, file: str | None) -> None:
        package = None if spec is None else spec.parent
        vars(self.module).update(
            __builtins__=builtins,
            __cached__=None if spec is None else spec.cached,
            __doc__=None,
            __file__=file,
            __loader__=loader,
            __package__=package,
            __spec__=spec,
        )


def enter(program: Program) -> None:
    """Let imports begin where they would for this program."""
    if sys.flags.safe_path:  # -P: neither the script's folder nor this one
        return
    home = str(Path.cwd()) if program.is_module else str(Path(program.name).resolve().parent)
    if sys.path:
        sys.path[0] = home  # what is there is the folder of this command
    else:
        sys.path.append(home)


def _spec(name: str) -> ModuleSpec | None:
    if name.startswith("."):
        return None
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if error.name is not None and name.startswith(error.name):
            return None
        raise
    except ValueError:
        return None


# How it ended


def code_of(error: SystemExit) -> int:
    """Return the exit code that a SystemExit asks for; a text is printed, as Python does."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code
    with contextlib.suppress(Exception):  # as Python does where that fails
        print(error.code, file=sys.stderr)  # anything that can be printed
    return _FAILED


def wait_for_threads() -> None:
    """Wait for what Python waits for at the end of a program: threads that are no daemons.

    Executors are told first, as Python tells them: their threads end only then.
    """
    with contextlib.suppress(KeyboardInterrupt):  # and then Python does it once more
        for tell in reversed(getattr(threading, "_threading_atexits", ())):
            tell()
        while others := [each for each in threading.enumerate() if _is_waited_for(each)]:
            others[0].join()


def _is_waited_for(thread: threading.Thread) -> bool:
    return not thread.daemon and thread is not threading.current_thread()


def show(error: BaseException) -> int | None:
    """Print the traceback of the user's error, without the frames of the watcher.

    Returns the exit code that a hook of the user's own asks for, if it does.
    """
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            each.__traceback__ = without_us(each.__traceback__)
            waiting += [each.__cause__, each.__context__]
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except SystemExit as end:
        return code_of(end)
    except Exception as fault:  # noqa: BLE001  # a hook of the user's own; Python tells of both
        said = "".join(traceback.format_exception(fault))
        first = "".join(traceback.format_exception(error))
        say(f"Error in sys.excepthook:\n{said}\nOriginal exception was:\n{first}")
    return None


def without_us(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of the watcher and of whoever started it."""
    kept = []
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(_HIDDEN):
            kept.append(trace)
        trace = trace.tb_next
    following: TracebackType | None = None
    for each in reversed(kept):
        each.tb_next = following
        following = each
    return following


# Waiting for torch


class _Loader:
    """The loader of a module, with something to do once it is loaded."""

    def __init__(self, loader: Any, then: Callable[[], None]) -> None:
        self._loader = loader
        self._then = then

    def create_module(self, spec: ModuleSpec) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._then()


class _Finder:
    """Finds one module, once."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name = name
        self._then = then

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: object = None
    ) -> ModuleSpec | None:
        del path, target
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Loader(spec.loader, self._then)  # type: ignore[assignment]
        return spec


def once_imported(name: str, then: Callable[[], None]) -> Callable[[], None]:
    """Call `then` as soon as a module has been imported; return what takes that back."""
    if name in sys.modules:
        then()
        return lambda: None
    finder = _Finder(name, then)
    sys.meta_path.insert(0, finder)

    def forget() -> None:
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)

    return forget
