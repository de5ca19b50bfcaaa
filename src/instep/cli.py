"""The command line. It starts without torch."""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from instep.commands.parser import build
from instep.errors import InstepError

if TYPE_CHECKING:
    from collections.abc import Sequence

CANNOT_RUN, PIPE_CLOSED, INTERRUPTED = 2, 1, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    try:
        parser = build()
        if not (sys.argv[1:] if arguments is None else arguments):
            parser.print_help()
            return CANNOT_RUN
        options = parser.parse_args(arguments)
        # Imported when asked for: help, and a typing mistake, need none of them.
        code: int = _loaded(options.command).run(options)
        if options.command != "watch":  # what a program has made of its streams, Python ends
            sys.stdout.flush()
    except InstepError as error:
        from instep.commands.printable import printable

        sys.stderr.write(f"instep: {printable(error)}\n")
        return CANNOT_RUN
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever reads us has seen enough. What is buffered must not be tried again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    return code


def _loaded(command: str) -> Any:
    """Load the module of a command: many new objects and no garbage, so nobody looks for some."""
    is_on = gc.isenabled()
    gc.disable()
    try:
        return import_module(f"instep.commands.{command}")
    finally:
        if is_on:
            gc.enable()


def _is_looked_at() -> bool:
    """Say whether a debugger, a profiler or whoever started it with -i wants to see the end."""
    return bool(sys.gettrace() or sys.getprofile() or sys.flags.interactive)


def _is_written() -> bool:
    """Write out what is buffered; where that fails, Python says so at its own end."""
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except OSError:
        return False
    return True


def entry() -> NoReturn:
    """Run the command line as a process of its own, and end it.

    A program under watch that Ctrl-C has ended, ends by that signal, as Python would end it:
    whoever has started it (a shell, a launcher) looks for that.
    """
    if sys.argv[1:2] == ["check"]:
        gc.disable()  # it collects while it makes something to collect
    code = main()
    watch = sys.modules.get("instep.commands.watch")
    if watch is None:
        # Python takes everything apart before it ends: very many objects, none of which minds to be
        # forgotten. Those of a program under watch may, and so does whoever looks at this process.
        gc.freeze()
        if not _is_looked_at() and _is_written():
            os._exit(code)
    elif code == watch.INTERRUPTED:
        sys.excepthook = lambda *_: None  # what there is to show has been shown
        raise KeyboardInterrupt
    sys.exit(code)
