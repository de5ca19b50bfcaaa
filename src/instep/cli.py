"""The command line. It starts without torch."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

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
        code: int = import_module(f"instep.commands.{options.command}").run(options)
        sys.stdout.flush()
    except InstepError as error:
        sys.stderr.write(f"instep: {_printable(str(error))}\n")
        return CANNOT_RUN
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever reads us has seen enough. What is buffered must not be tried again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    return code


def _printable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
