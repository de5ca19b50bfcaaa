"""`instep watch`: a program run under watch, its end, and what is told then."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import traceback
from typing import TYPE_CHECKING

from instep.check.options import Settings, configure
from instep.commands.parser import taken_for_its_own
from instep.commands.printable import printable
from instep.commands.watched import Outputs
from instep.errors import WatchError
from instep.reports.escape import visible
from instep.rules.registry import names
from instep.watching.launch import (
    Program,
    Ready,
    code_of,
    once_imported,
    show,
    wait_for_threads,
)
from instep.watching.ranks import ranks_of
from instep.watching.spool import Spool
from instep.watching.voice import Voice, say

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator
    from types import FrameType

    from instep.rules import Finding
    from instep.watching.job import Job

FAILED, CANNOT_RUN, INTERRUPTED = 1, 2, -signal.SIGINT
_FATAL = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


def run(options: argparse.Namespace) -> int:
    """Run a program under watch; return its exit code, or 1 with --strict if it is not right."""
    program = _program(options)
    watch = Watch(options)
    ready = Ready(program)
    code = watch.run(ready)
    if code == 0 and options.strict and watch.outputs.fails:
        return FAILED
    return code


def _program(options: argparse.Namespace) -> Program:
    if options.module is not None:
        return Program(options.module, tuple(options.arguments), is_module=True)
    if options.script is None:
        raise WatchError(
            "there is nothing to run.",
            why="instep watch runs a program and looks at its updates.",
            fix="instep watch train.py ARGUMENTS, or instep watch -m PACKAGE ARGUMENTS.",
            more="watching",
        )
    return Program(options.script, tuple(options.arguments))


class Watch:
    """One program from its start to its end, whatever that is."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._process = os.getpid()
        self._is_over = False
        rules = names()
        where = options.script if options.module is None else "."
        config = configure([where], rules, select=options.select, ignore=options.ignore)
        self._settings = Settings(config, rules)
        self.outputs = Outputs(options, ranks_of(os.environ), level=config.severity)
        self._spool = Spool(lambda: self.outputs.write("running"))

    @property
    def job(self) -> Job | None:
        """What is watched, once the program has imported torch."""
        return self.outputs.job

    def run(self, ready: Ready) -> int:
        """Run the program to its end, and tell what was seen; return its exit code."""
        with self._killed():
            forget = once_imported("torch", self._begin)
            code, ending, self.outputs.error = _ended(ready, self._crashed)
            forget()
            wait_for_threads()
            self.finish(ending)
            if code == CANNOT_RUN:
                with self._safely():
                    self._misplaced()
        return code

    def _misplaced(self) -> None:
        """Say where options of ours belong, if the program was given one and has refused to run."""
        words = taken_for_its_own(self._options.arguments)
        if words and self.outputs.ranks.is_first:
            name = self._options.script or f"-m {self._options.module}"
            say(
                f"instep: {words[0]} was given to the program. Options of instep come before it: "
                f"instep watch {words[0]} ... {visible(name)}\n"
            )

    def _begin(self) -> None:
        """Begin to watch: torch is there, and nothing has been done with it."""
        with self._safely():
            from instep.watching.job import Job  # noqa: PLC0415  # it imports torch

            is_live = not self._options.quiet and self.outputs.ranks.is_first
            job = Job(live=is_live)
            if is_live:
                job.voice = Voice(job.quoting, prefix=self.outputs.ranks.prefix)
            job.accepts = self._accepts
            self.outputs.job = job
            if self.outputs.has_files:
                job.on_update = self._updated
            job.start()

    def _crashed(self, error: BaseException) -> None:
        with self._safely():
            if self.job is not None:
                self.job.crashed(error)

    def _accepts(self, finding: Finding) -> bool:
        return finding.code in self._settings.codes_for(finding.place.path)

    def _updated(self) -> None:
        if self.job is not None and os.getpid() == self._process:
            self._spool.updated(len(self.job.judge.findings))

    def finish(self, ending: str, *, patience: float | None = None) -> None:
        """Let go, write what was asked for, and tell the rest; only once."""
        if self._is_over or os.getpid() != self._process:
            return
        self._is_over = True
        with self._safely():
            if self.job is not None:
                self.job.stop()
        with self._safely():
            self.outputs.finish(ending, patience)

    @contextlib.contextmanager
    def _safely(self) -> Iterator[None]:
        try:
            yield
        except WatchError as error:
            say(f"instep: {printable(error)}\n")
        except Exception as error:  # noqa: BLE001  # whatever it is, the job goes on
            say(
                f"instep: the watcher failed ({type(error).__name__}: {visible(str(error))}); "
                "the job is not affected.\n"
            )

    @contextlib.contextmanager
    def _killed(self) -> Iterator[None]:
        """Tell what was seen when the job is killed politely, and die of it as it would have."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        mine = [each for each in _FATAL if signal.getsignal(each) is signal.SIG_DFL]
        for each in mine:
            signal.signal(each, self._die)
        try:
            yield
        finally:
            for each in mine:
                if signal.getsignal(each) == self._die:
                    signal.signal(each, signal.SIG_DFL)

    def _die(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.finish("killed", patience=1.0)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def _ended(ready: Ready, crashed: Callable[[BaseException], None]) -> tuple[int, str, str | None]:
    """Run a program; return its exit code, how it ended, and with which error."""
    try:
        ready.run()
    except SystemExit as error:
        code = code_of(error)
        return code, "finished" if code == 0 else "failed", f"exit {code}" if code else None
    except KeyboardInterrupt as error:
        asked = show(error)
        return INTERRUPTED if asked is None else asked, "interrupted", None
    except BaseException as error:  # noqa: BLE001  # this is where Python itself would catch it
        crashed(error)
        asked = show(error)
        said = traceback.format_exception_only(error)[-1].strip()
        return FAILED if asked is None else asked, "failed", said
    finally:
        with contextlib.suppress(Exception):  # closed, or of the program's own
            sys.stdout.flush()
    return 0, "finished", None
