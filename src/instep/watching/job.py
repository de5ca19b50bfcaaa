"""`instep.watch`: a job that is watched, from the inside."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch

from instep.errors import WatchError
from instep.rules.finding import Severity
from instep.watching import crash, running
from instep.watching.book import Book
from instep.watching.gauges import Gauges
from instep.watching.judging import Judge
from instep.watching.quoting import Quoting
from instep.watching.recorder import Recorder
from instep.watching.samples import Sampler
from instep.watching.scalars import Scalars
from instep.watching.scope import Scope
from instep.watching.seam import Seam
from instep.watching.seams import (
    backward,
    clipping,
    loaders,
    modules,
    optimizers,
    processes,
    scalers,
    schedulers,
)
from instep.watching.series import Series
from instep.watching.strangers import leave_out
from instep.watching.stream import Stream
from instep.watching.told import Findings, write
from instep.watching.unseen import aside
from instep.watching.voice import Voice, counted, summary

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from instep.rules.finding import Finding
    from instep.trace import Trace
    from instep.watching.apart import Ending

_SEAMS = (optimizers, backward, scalers, clipping, schedulers, loaders, modules, processes)
_PARTS = ("parameters", "step", "zero_grad", "unscale_")
"""What something has that takes part in training."""
_FRAMEWORKS = ("accelerate", "lightning", "pytorch_lightning", "lightning_fabric", "transformers")


class Job:
    """A training job under watch. Use it as a context manager, or call `start` and `stop`."""

    def __init__(
        self, *things: Any, strict: bool = False, live: bool = True, writer: Any = None
    ) -> None:
        self.series = Series()
        self.gauges = Gauges()
        self.stream = Stream()
        self._things = _watchable(things)
        self.book = Book(_skipped(), Scope(self._things))
        self.sampler = Sampler(self.book, self.series, self.gauges)
        self.recorder = Recorder(self.book, self.stream, self.series, self.sampler)
        self.judge = Judge(self.stream, self.gauges, self.series)
        self.seam = Seam(self.recorder)
        leave_out(self.recorder, self.seam.patches.threads)
        if writer is not None:
            self.series.told = Scalars(writer, self.seam.on_fault)
        self.quoting = Quoting()
        self.voice = Voice(self.quoting) if live else None
        """Says what is found as soon as it is certain."""
        self.strict = strict
        self.accepts: Callable[[Finding], bool] = lambda _: True
        """Which findings anybody wants to hear of."""
        self.on_update: Callable[[], None] | None = None
        """Called after every update."""
        self._is_on = self._has_failed = False

    @property
    def findings(self) -> Findings:
        """What has been found so far, without what comments at the user's lines silence.

        It is a tuple that prints one line for each.
        """
        found = (each for each in self.judge.findings.values() if self._counts(each))
        return Findings.of(found, self.quoting)

    @property
    def trace(self) -> Trace:
        """What has happened so far, told short."""
        return self.stream.trace

    def summary(self) -> str:
        """Return in two or three lines what was watched and how much was found.

        >>> print(Job().summary(), end="")
        No update was seen: there was nothing to judge.
        """
        return summary(
            self.findings,
            updates=self.series.updates,
            skipped=self.series.skipped,
            faults=len(self.seam.faults),
            aside=aside(self),
        )

    def report(self, path: str | Path) -> None:
        """Write a report: the page if the name ends in .html, else .json, .sarif or .txt.

        It may be called while the job runs, and tells what is known by then.
        """
        write(self, path)

    @property
    def ending(self) -> str:
        """How the job has ended: "running", "finished" or "failed"."""
        return "running" if self._is_on else "failed" if self._has_failed else "finished"

    def start(self) -> Self:
        """Begin to watch."""
        self._is_on = True
        running.began(self)
        self.recorder.turned = self._turned
        self.judge.told = self._told
        with self.seam.safely():
            self.recorder.fact("job", "job", None, source="watch")
        for seam in _SEAMS:
            with self.seam.safely():
                seam.install(self.seam)
        with self.seam.safely():
            self._take(self._things)
        return self

    def crashed(self, error: BaseException) -> None:
        """Take note of the error that ends the job, while everything is as it left it."""
        with self.seam.safely():
            if self._is_on:
                self.sampler.nonfinite.may_ask = False
                crash.tell(error, self.recorder)

    def stop(self) -> None:
        """Let go of everything, and judge what was seen."""
        if not self._is_on:
            return
        self._is_on = False
        running.ended(self)
        while self.seam.patches.is_held:
            with self.seam.safely():
                self.seam.patches.undo()
        with self.seam.safely():
            self.book.close()
        with self.seam.safely():
            self.sampler.finish()
        with self.seam.safely():
            self.recorder.feeds.settle(last=True)
            self.sampler.close()
            self.stream.finish()
            self.judge.look(last=True)
        with self.seam.safely():
            if self.voice is not None:
                self.voice.go_on(last=True)

    def endings(self, *, has_finished: bool) -> dict[str, Ending]:
        """Return what the other ranks of the job are to know about the end of this one."""
        return self.sampler.ranks.endings(has_finished=has_finished)

    def compare(self, endings: Mapping[int, Mapping[str, Ending]]) -> None:
        """Judge once more, now that it is known how the job has ended on several ranks."""
        self.sampler.ranks.compare(endings)
        self.judge.look(last=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._has_failed = True
            self.crashed(error)
        self.stop()
        if self.strict and error is None:
            self._refuse()

    def _refuse(self) -> None:
        found = [each for each in self.findings if each.severity >= Severity.WARNING]
        if found:
            first, *others = map(self.quoting.shown, sorted(found, key=lambda each: -each.severity))
            also = ", ".join(f"{each.place}: {each.code} {each.name}" for each in others)
            raise WatchError(
                f"{counted(found)} found in what was watched.",
                why=f"{first.place}: {first.code} {first.name}: {first.message}"
                + (f" And {also}." if also else ""),
                fix=f"mend it, or say at the line that it is meant: # instep: ignore[{first.name}]",
                more="watching",
            )

    def _counts(self, finding: Finding) -> bool:
        return self.accepts(finding) and not self.quoting.is_silenced(finding)

    def _told(self, finding: Finding) -> None:
        if self.voice is not None and self._counts(finding):
            self.voice.tell(finding)

    def _turned(self, kept: bool) -> None:  # noqa: FBT001  # called by the recorder alone
        if self.book.fresh:
            self._hook_models()
        self.judge.turned(kept)
        if self.voice is not None:
            self.voice.go_on()
        if self.on_update is not None:
            self.on_update()

    def _take(self, things: tuple[Any, ...]) -> None:
        """Take what the user has named, and everything that is alive already."""
        for thing in things:
            if isinstance(thing, torch.nn.Module):
                self.book.take_model(thing)
        # Those that are not named as well: what they train is somebody's.
        self.book.take_alive(_alive(torch.optim.Optimizer))
        self._hook_models()

    def _hook_models(self) -> None:
        while self.book.fresh:
            model = self.book.fresh.popleft()()
            if model is not None:
                modules.hook_forward(self.seam, model)


def watch(*things: Any, strict: bool = False, live: bool = True, writer: Any = None) -> Job:
    """Watch the training that happens inside a `with` block.

    things: models and optimizers; with none, those that are used are found. Of those that are
        named, and of optimizers that hold parameters of named models, everything is watched, and
        of others nothing.
    strict: raise WatchError at the end of the block if an error or a warning was found in it.
    live: print each finding on standard error as soon as it is certain.
    writer: given losses, norms and rates as they come, by its `add_scalar(tag, value, step)`.

    >>> with watch() as job:
    ...     pass
    >>> job.findings
    ()
    """
    return Job(*things, strict=strict, live=live, writer=writer)


def _watchable(things: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what was named, if all of it has a part in training."""
    for thing in things:
        if not any(hasattr(type(thing), word) for word in _PARTS):
            raise WatchError(
                f"{type(thing).__name__} is nothing that could be watched.",
                why="models, optimizers, schedulers and scalers can be named.",
                fix="say instep.watch(model, optimizer), or instep.watch() to find what is used; "
                "a script is watched by `instep watch script.py`.",
                more="watching",
            )
    return things


def _alive(kind: type) -> list[Any]:
    import gc  # noqa: PLC0415

    return [thing for thing in gc.get_objects() if issubclass(type(thing), kind)]


def _skipped() -> tuple[str, ...]:
    """Return the folders whose lines are nobody's: Python's own, torch's, those of frameworks."""
    site = [str(Path(torch.__file__).parents[1])]
    paths = [str(Path(torch.__file__).parent) + "/", sysconfig.get_path("stdlib") + "/"]
    paths += [f"{folder}/{name}/" for folder in site for name in _FRAMEWORKS]
    return tuple(paths)
