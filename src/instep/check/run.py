"""A whole run: find the files, pass over those without a loop, check the others."""

from __future__ import annotations

import os
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from instep.check.discovery import discover, is_out
from instep.check.elsewhere import by_file, gathered
from instep.check.one import check_bytes, clean_bytes
from instep.check.outcome import Outcome
from instep.check.problems import Diagnostic, diagnose
from instep.check.sources import STDIN, kind_of
from instep.check.suppressions import UNUSED_CODE
from instep.check.tools import load
from instep.check.words import COMMENTS, holds_bytes
from instep.check.workers import Task, spread
from instep.errors import CheckError
from instep.trace import Place
from instep.trace.plain import dataclass, field, replace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from instep.check.cache import Cache
    from instep.check.discovery import Ignore
    from instep.check.options import Settings
    from instep.check.progress import Progress
    from instep.check.tools import Tools

_NO_FILE = "it is not a file."
_MOST = 64 << 20  # bytes; nothing larger is checked, whatever it is


class Stdin(NamedTuple):
    """Standard input, and the path that it stands for."""

    data: bytes
    path: str = STDIN


@dataclass(frozen=True)
class Run:
    """What to check, and how."""

    settings: Settings
    paths: Sequence[str] = (".",)
    exclude: Sequence[Ignore] = ()
    stdin: Stdin | None = None
    """Has to be there if "-" is among the paths."""
    jobs: int = 1
    cache: str | None = None
    """The cache's folder; None: no cache."""
    load: Callable[[], Tools] = field(default=load, repr=False)

    @cached_property
    def named(self) -> frozenset[str]:
        """The paths, spelled the way that files are shown."""
        return frozenset(str(Path(path)) for path in self.paths)


@dataclass(frozen=True, slots=True)
class Checked:
    """All that came of a run."""

    files: tuple[str, ...]
    """Every file that was looked at, as shown to the user."""
    outcomes: tuple[Outcome, ...]
    """Of the files that have something to say, in the order of `files`."""


def check(run: Run, progress: Progress) -> Checked:
    """Check all files of a run, one by one: `settle` holds them against each other."""
    _refuse_closed(run.paths)
    files = [str(file) for file in discover(run.paths, exclude=_excluded(run))]
    tools = run.load()
    worker = _Worker(run.settings, run.cache, tools)
    found: dict[str, Outcome] = {}
    tasks: list[Task] = []
    for path in files:
        if path == STDIN:
            name, outcome = _check_stdin(run, tools)
            found[name] = outcome
            continue
        first = worker.glance(path, named=path in run.named)
        if isinstance(first, Outcome):
            found[path] = first
        elif first is not None:
            tasks.append(first)
    progress.start(sum(task.size for task in tasks))
    make = partial(_make, run.settings, run.cache, run.load)
    for task, outcome in spread(tasks, make, jobs=run.jobs):
        found[task.path] = outcome
        progress.advance(task.size)
    if run.settings.fixes:
        _clean(run, found, tools)
    shown = [run.stdin.path if path == STDIN and run.stdin else path for path in files]
    return Checked(tuple(shown), tuple(found[path] for path in shown if path in found))


def settle(run: Run, checked: Checked) -> Checked:
    """Report what was found in files that others import under those files; what is mended has to
    be written by then, if it is to be.
    """
    outcomes = [_up_to_date(run, outcome, checked.outcomes) for outcome in checked.outcomes]
    out = partial(is_out, exclude=_excluded(run))
    return Checked(checked.files, gathered(outcomes, checked.files, run.settings, out))


def _up_to_date(run: Run, outcome: Outcome, outcomes: Sequence[Outcome]) -> Outcome:
    """Judge a file again if one in which it found something has been mended since."""
    if not outcome.elsewhere or not run.settings.fixes:
        return outcome
    mended = {_absolute(each.path): each.after for each in outcomes if each.after is not None}
    if mended.keys().isdisjoint(by_file([outcome])):
        return outcome
    settings, tools = replace(run.settings, fixes=False), run.load()
    if tools.judge_with is not None:  # nothing is written where only a diff is shown
        tools = replace(tools, judge=tools.judge_with(mended))
    worker = _Worker(settings, None, tools)
    again = worker(Task(outcome.path, 0, outcome.path in run.named), outcome.after)
    return replace(outcome, elsewhere=again.elsewhere)


def _clean(run: Run, found: dict[str, Outcome], tools: Tools) -> None:
    """Remove comments that silence nothing: not before it is known what other files find here."""
    elsewhere = by_file(found.values())
    for path, outcome in found.items():
        if not any(each.code == UNUSED_CODE and each.fix for each in outcome.findings):
            continue
        is_stdin = run.stdin is not None and path == run.stdin.path
        data = run.stdin.data if is_stdin and run.stdin else _read(path)
        if isinstance(data, Diagnostic) or data != (outcome.before or data):
            continue  # it has changed just now, and will not be written
        found[path] = clean_bytes(
            outcome,
            data,
            kind_of(path),
            run.settings,
            tools,
            named=is_stdin or path in run.named,
            spared={finding.code for finding in elsewhere.get(_absolute(path), ())},
        )


def _absolute(path: str) -> str:
    return os.path.abspath(path)  # noqa: PTH100  # no links followed


def _refuse_closed(paths: Sequence[str]) -> None:
    for path in paths:
        if os.path.isdir(path) and not os.access(path, os.R_OK | os.X_OK):  # noqa: PTH112
            raise CheckError(
                f"{path!r} may not be read.",
                why="a folder that is passed over in silence would look clean.",
                fix="change its permissions, or leave it out.",
                more="paths",
            )


def _excluded(run: Run) -> list[Ignore]:
    return [*run.exclude, run.settings.config.excluded()]


def _check_stdin(run: Run, tools: Tools) -> tuple[str, Outcome]:
    data, path = run.stdin or Stdin(b"")
    return path, check_bytes(data, path, kind_of(path), run.settings, tools, named=True)


def _make(settings: Settings, folder: str | None, load: Callable[[], Tools]) -> _Worker:
    return _Worker(settings, folder, load())


class _Worker:
    """Checks files, one after another."""

    def __init__(self, settings: Settings, folder: str | None, tools: Tools) -> None:
        self._settings, self._tools = settings, tools
        self._folder = folder

    def glance(self, path: str, *, named: bool) -> Task | Outcome | None:
        """Return what is known without judging: nothing to say, an outcome, or that it is work."""
        if named and not Path(path).is_file():  # a pipe would be waited for without end
            return Outcome(path, diagnostic=diagnose("unreadable", Place(path, 1), _NO_FILE))
        data = _read(path)
        if isinstance(data, Diagnostic):
            return Outcome(path, diagnostic=data)
        if not self._concerns_us(data):
            # It is parsed before its entry could be found in the cache.
            return Task(path, len(data), named) if named else None
        if self._cache is not None and (known := self._cache.get(path, data)) is not None:
            return known
        return Task(path, len(data), named)

    def __call__(self, task: Task, given: bytes | None = None) -> Outcome:
        """Check one file, as it is if its content is not given, and remember what came of it."""
        data = _read(task.path) if given is None else given
        if isinstance(data, Diagnostic):
            return Outcome(task.path, diagnostic=data)
        outcome = check_bytes(
            data, task.path, kind_of(task.path), self._settings, self._tools, named=task.named
        )
        if self._concerns_us(data) and self._cache is not None:
            self._cache.put(task.path, data, outcome)
        return outcome

    @cached_property
    def _cache(self) -> Cache | None:
        # What is mended is judged anew, because fixes are made from more than the cache keeps.
        if self._folder is None or self._settings.fixes:
            return None
        from instep.check.cache import Cache  # noqa: PLC0415  # slow to load

        return Cache(self._folder, self._settings)

    def _concerns_us(self, data: bytes) -> bool:
        return holds_bytes(data, self._tools.words) or holds_bytes(data, COMMENTS)


def _read(path: str) -> bytes | Diagnostic:
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123  # one call per file of a tree
            size = os.fstat(file.fileno()).st_size
            data = b"" if size > _MOST else file.read()
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        reason = getattr(error, "strerror", None) or str(error)
        return diagnose("unreadable", Place(path, 1), f"it cannot be read ({reason}).")
    if size > _MOST and kind_of(path) != "markdown":  # logs and data sets end in .txt too
        what = f"it has {size:,} bytes; at most {_MOST:,} are read."
        return diagnose("too-large", Place(path, 1), what)
    return data
