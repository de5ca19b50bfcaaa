"""What `instep watch` leaves behind: files, kept up to date, and the last words of a run."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from instep import __version__
from instep.commands.present import described
from instep.errors import WatchError
from instep.reports.files import put
from instep.reports.options import Options
from instep.reports.registry import render
from instep.watching.apart import named
from instep.watching.naming import format_of
from instep.watching.quoting import Quoting
from instep.watching.ranks import merged
from instep.watching.unseen import aside
from instep.watching.voice import colours, say, summary

if TYPE_CHECKING:
    import argparse

    from instep.reports.record import Record
    from instep.rules import Finding, Severity
    from instep.watching.job import Job
    from instep.watching.ranks import Heard, Ranks

_MOST_MOMENTS = 2000
"""In a page that is written again soon."""
_DRAWINGS = {"report": "instep.reports.page", "chrome_trace": "instep.reports.chrome"}
"""Options that name a file, and the modules that write it."""


class Outputs:
    """Where a watch reports to."""

    def __init__(self, options: argparse.Namespace, ranks: Ranks, *, level: Severity) -> None:
        self.job: Job | None = None
        self.ranks = ranks
        self._options = options
        self._level = level
        self._quoting = Quoting()
        self._unheard: list[int] = []
        self._is_alone = False  # the first rank has left before this one
        self._found: tuple[Finding, ...] = ()
        self.findings: tuple[Finding, ...] = ()
        """Of all ranks that were heard, with the paths that their reader would type."""
        self.error: str | None = None
        """The last line of what the program failed with."""
        files = (options.output_file, *(getattr(options, name) for name in _DRAWINGS))
        named = [file for file in files if file is not None]
        if options.report is not None:
            format_of(options.report)  # refuses a name that does not tell
        for file in named:
            _refuse(file)
        # The folder that the program was started in counts, wherever it goes.
        self._files = {file: os.path.abspath(file) for file in named}  # noqa: PTH100
        # Where rank 0 has left its findings: those that come later belong there as well.
        shares = ranks.rank == ranks.local and ranks.folder is not None
        self._late_file = self._files.get(options.output_file) if shares else None
        if ranks.rank:
            self._files = {}  # one process writes them

    @property
    def has_files(self) -> bool:
        """Whether anything is to be written while the job runs."""
        return bool(self._files) or self.ranks.folder is not None

    @property
    def fails(self) -> bool:
        """Whether there is anything that --strict does not let through."""
        speaks = self.ranks.is_first or self._is_alone
        return speaks and any(each.severity >= self._level for each in self.findings)

    def write(self, ending: str) -> None:
        """Write the files that were asked for, as far as is known now."""
        own = () if self.job is None else self.job.findings
        self.ranks.say(own, is_over=ending != "running")
        if self.ranks.is_first:
            self._take(merged(self.ranks.hear()) if self.ranks.folder is not None else own)
            self._files_written(ending)

    def finish(self, ending: str, patience: float | None) -> None:
        """Write the files for the last time, and tell what there is to tell."""
        own: tuple[Finding, ...] = () if self.job is None else self.job.findings
        has_finished = ending == "finished"
        try:
            ends = (
                {}
                if self.job is None
                else self.job.sampler.ranks.endings(has_finished=has_finished)
            )
            self.ranks.say(own, is_over=True, endings=ends)
            self._is_alone = self.ranks.is_left_alone
        except OSError:  # the folder is gone, and whoever was to tell it
            self._is_alone = not self.ranks.is_first
            self._take(own)
            self._tell(self.findings)
            return
        if self._is_alone:
            self._tell_alone(patience)
        if not self.ranks.is_first:
            return
        if self.ranks.folder is not None:
            own = self._heard(patience)
        self._take(own)
        try:
            self._files_written(ending)
        finally:
            self._tell(self.findings)
        self._ask_checker(patience)

    def _heard(self, patience: float | None) -> tuple[Finding, ...]:
        """Return what was found on this machine, and note who is left to tell by itself."""
        heard = self.ranks.wait() if patience is None else self.ranks.wait(patience)
        self._unheard = self.ranks.unheard(heard)
        if not self.ranks.give_up(self._unheard):
            heard = self.ranks.hear()
            self._unheard = self.ranks.unheard(heard)
        found = merged(self._compared(heard))
        if self.ranks.is_last(heard):
            self.ranks.forget()
        else:
            for finding in found:
                self.ranks.tells(finding)
        return found

    def _tell_alone(self, patience: float | None) -> None:
        """Tell what nobody had told when the first rank left: there is nobody else who could."""
        heard = self.ranks.hear()
        self._unheard = self.ranks.unheard(heard)
        self._take(merged(self._compared(heard)))
        told = zip(self._found, self.findings, strict=True)
        fresh = tuple(shown for found, shown in told if self.ranks.tells(found))
        if self.ranks.is_last(heard):
            self.ranks.forget()
        try:
            if fresh and self._late_file is not None:
                _put(self._late_file, self._report(Options()))
        finally:
            self._tell(fresh)
        self._ask_checker(patience)

    def _ask_checker(self, patience: float | None) -> None:
        """Say what it mends of all this, if there is time for it and anybody to tell: last of all,
        because it takes a moment in which a job may be stopped.
        """
        if patience is None and not self._options.quiet:
            mends = _mended(self.findings, self._options.script, self._quoting.folder)
            if mends:
                say(f"{self.ranks.prefix or 'instep: '}{mends}")

    def _compared(self, heard: list[Heard]) -> list[Heard]:
        """Return what the ranks have said, with what only shows when all of them are over."""
        over = {each.rank: each.endings for each in heard if each.is_over}
        if self.job is None or len(over) < 2:
            return heard
        self.job.compare(over)
        mine = tuple(self.job.findings)
        return [
            replace(each, findings=mine) if each.rank == self.ranks.rank else each for each in heard
        ]

    def _take(self, findings: tuple[Finding, ...]) -> None:
        self._found = findings
        self.findings = tuple(self._quoting.shown(finding) for finding in findings)

    # Files

    def _files_written(self, ending: str) -> None:
        file = self._files.get(self._options.output_file)
        if file is not None:
            _put(file, self._report(Options()))
        report = self._files.get(self._options.report)
        name = None if report is None else format_of(report)
        if report is not None and name is not None:
            _put(report, self._report(Options(), name))
        self._drawn(ending)

    def _drawn(self, ending: str) -> None:
        """Write the page and the trace."""
        wanted = {
            name: self._files[getattr(self._options, name)]
            for name in _DRAWINGS
            if getattr(self._options, name) in self._files
            and not (name == "report" and format_of(self._options.report))
        }
        if not wanted or self.job is None:
            return
        record = self._record(self.job, ending)
        for name, file in wanted.items():
            try:
                import_module(_DRAWINGS[name]).write(record, file)
            except OSError as error:
                raise _unwritten(file, error) from error

    def _record(self, job: Job, ending: str) -> Record:
        """Return what pages and traces are drawn from."""
        from instep.watching.record_of import record_of  # noqa: PLC0415  # it imports torch

        program = self._options.script or f"-m {self._options.module}"
        return record_of(
            job,
            command=(program, *self._options.arguments),
            ending=ending,
            error=self.error,
            findings=self._found,
            unheard=self._unheard,
            version=__version__,
            most_moments=_MOST_MOMENTS if ending == "running" else None,
        )

    def _report(self, made: Options, name: str | None = None) -> str:
        """Return the findings in a format; None: the one that was asked for."""
        name = name or self._options.output_format
        if name != "text":
            return render(name, self.findings, self._quoting, described(name))
        text = render("text", self.findings, self._quoting, made)
        return "\n".join(part for part in (text, self._summary()) if part)

    # Last words

    def _tell(self, findings: tuple[Finding, ...]) -> None:
        name = self._options.output_format
        # For programs there is one report, that of the first rank.
        if self._options.output_file is None and name != "text" and not self._is_alone:
            say(self._report(Options()), sys.stdout)
        elif findings:
            width = shutil.get_terminal_size((100, 24)).columns
            shown = Options(colour=colours(sys.stderr), width=width)
            say("\n" + render("text", findings, self._quoting, shown) + "\n")
        if not self._options.quiet:
            start = self.ranks.prefix or "instep: "
            say("".join(f"{start}{row}\n" for row in self._summary().splitlines()))

    def _summary(self) -> str:
        if self._options.quiet:
            return ""
        if self.job is None:
            return "The program did not import torch: nothing was watched.\n"
        said = summary(
            self.findings,
            updates=self.job.series.updates,
            skipped=self.job.series.skipped,
            faults=len(self.job.seam.faults),
            aside=aside(self.job),
            is_open=bool(self._unheard),
        )
        if self.ranks.folder is not None:
            said += (
                f"Of {self.ranks.size:,} ranks; updates are counted on rank {self.ranks.rank}.\n"
            )
        if self._unheard:
            said += f"Not heard to the end: {named(self._unheard)}.\n"
        if self._is_alone:
            said += "The first rank of this machine had left, and told what it knew by then.\n"
        return said


def _mended(findings: tuple[Finding, ...], script: str | None, folder: str) -> str:
    """Say what the checker mends of what was seen: a running job only shows what is wrong."""
    from instep.commands.mendable import mendable  # noqa: PLC0415  # loaded where it is used

    try:
        found = mendable(findings, script, folder)
    except (OSError, MemoryError, RecursionError):  # what a program may have left behind
        return ""
    if found is None:
        return ""
    which = "it" if len(findings) == 1 else f"{found.number:,} of them"
    return f"`{found.command}` mends {which} in the source.\n"


def _refuse(file: str) -> None:
    """Refuse a file that cannot be written, before a long job has run in vain."""
    path = Path(file)
    if path.suffix in {".py", ".pyw", ".ipynb"}:
        why = "that is a source file, which would be lost"
    elif path.is_dir():
        why = "that is a folder"
    elif not path.absolute().parent.is_dir():
        why = "its folder is not there"
    elif not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        why = "it may not be written"
    else:
        return
    raise WatchError(
        f"{file!r} cannot be the file of a report.",
        why=f"{why}.",
        fix="name a file in a folder that is there and can be written to.",
        more="watching",
    )


def _put(file: str, text: str) -> None:
    try:
        put(file, text)
    except OSError as error:
        raise _unwritten(file, error) from error


def _unwritten(file: str, error: OSError) -> WatchError:
    return WatchError(
        f"{file!r} was not written ({error.strerror or error}).",
        why="the report was to go there.",
        fix="check that there is room, and that the folder can be written to.",
        more="watching",
    )
