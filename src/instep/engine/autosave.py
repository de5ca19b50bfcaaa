"""`stepper.autosave`: go on where the last run ended, and save now and then, and when told to end.

Saving happens at safe points, where a run can be continued bit for bit: between two micro-batches,
between two windows, after a step in function style.
"""

from __future__ import annotations

import errno
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from instep.checkpoint import disk
from instep.checkpoint.envelope import EnvelopeError
from instep.engine import claims, saving, state
from instep.engine.extras import digest_of, fill, states_of
from instep.engine.pace import Pace
from instep.engine.ranks import errands
from instep.engine.signals import Signals
from instep.errors import CheckpointError, SetupError, WindowError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from instep.checkpoint.background import Writing
    from instep.engine.loop import Loop
    from instep.engine.ranks.together import Together
    from instep.engine.saving import Loaded, PathLike
    from instep.engine.stepper import Stepper

DAMAGED = ("truncated", "corrupted", "unfinished")


class Autosave:
    """A run that saves itself; what `stepper.autosave` returns.

    Use it as `with stepper.autosave(...) as run:` to save once more at the end and to put back the
    handlers of signals.
    """

    def __init__(
        self,
        stepper: Stepper,
        loop: Loop,
        path: PathLike,
        *,
        pace: Pace,
        extra: dict[str, Any],
        wait: bool,
        signals: Sequence[int],
        deadline: float,
    ) -> None:
        self._core = loop.core
        self._require_free(signals)
        self.path = disk.place_of(path)
        claims.require_free(self.path)
        self._knows_of_others = False
        # As it was given: where a link leads may differ between machines.
        self._given = Path(path).absolute()
        self.extra = extra
        """Your own data and objects: saved each time, and filled from what was loaded."""
        self._stepper, self._loop = stepper, loop
        self._pace, self._wait = pace, wait
        self._signals = Signals(signals, deadline, self._too_late)
        self.resumed: Loaded | None = self._resume()
        """The checkpoint that this run goes on from; None if it begins anew."""
        if self.resumed is not None:
            fill(extra, self.resumed.extra, loop)
        self._loaded_as = self._place()
        self._saved_at = (loop.index, time.monotonic())
        """When it was tried last."""
        self._kept = loop.index
        """Updates in the last checkpoint."""
        if self.resumed is None:
            # What cannot be saved is found out now, and not an hour later; and a run that is killed
            # before its first checkpoint begins again with the same weights.
            self.save()
        self._signals.install()
        self._core.autosave = self

    def _require_free(self, signals: Sequence[int]) -> None:
        if self._core.autosave is not None:
            raise SetupError(
                "this stepper saves itself already.",
                why="each autosave would put its own checkpoint in the place of the other's.",
                fix="leave the `with` block of the first one before, or call its stop().",
                more="autosave",
            )
        if signals and threading.current_thread() is not threading.main_thread():
            raise SetupError(
                "autosave was called outside of the main thread.",
                why="Python sets and runs handlers of signals in the main thread only.",
                fix="call it in the main thread, or pass signals=() to save by count and time.",
                more="autosave",
            )

    def save(self) -> None:
        """Save now; only where the run can be continued, as `stepper.save`."""
        self._kept = self._stepper.save(self._given, extra=states_of(self.extra)).updates
        self._saved_at = (self._loop.index, time.monotonic())

    def stop(self) -> None:
        """Save no more, and put back the handlers of signals."""
        if self._core.autosave is self:
            self._core.autosave = None
            self._signals.restore()
        claims.release(self.path, self)

    def __enter__(self) -> Self:
        try:
            claims.claim(self.path, self)
        except SetupError:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        try:
            if kind is not None:
                self._explain_end(self._signals.ended_by(tb))
            if kind is None and self._core.autosave is self:
                if not self._is_as_loaded():
                    self.save()
                # One that came after the last loop has waited for this.
                self._signals.pass_on()
        finally:
            self.stop()

    def _explain_end(self, number: int | None) -> None:
        """Say why nothing was saved, where a handler of a signal has ended the run."""
        if number is not None:
            name = signal.Signals(number).name
            self._core.warn(
                f"{name} has ended this run, and nothing was saved then.",
                why=f"its handler was set after autosave had begun, in the place of the one that "
                f"saves. The last checkpoint was made after {self._kept} updates.",
                fix=f"set your handler of {name} before stepper.autosave(): it is called when the "
                "work is saved.",
                more="autosave",
            )

    def _place(self) -> tuple[object, ...]:
        """Return what differs once anything was done since a checkpoint was loaded."""
        loop = self._loop
        return loop.index, loop.epoch, loop.is_epoch_over, loop.pending, digest_of(self.extra)

    def _is_as_loaded(self) -> bool:
        """Whether the checkpoint that was loaded says all there is to say.

        To write it again would put a copy of it in the place of the one before. Several ranks would
        have to agree, as their extras may differ: they save.
        """
        return (
            self.resumed is not None
            and not self.resumed.is_previous
            and self._core.together is None
            and self.path.exists()
            and self._loaded_as[-1] is not None
            and self._place() == self._loaded_as
        )

    # -- what the loops call -------------------------------------------------------------------

    def at_safe_point(self, *, between_windows: bool) -> None:
        """Save if it is time to, or if this process was told to end."""
        if state.why_not_resumable(self._loop) is not None:
            return
        if self._core.together is not None:
            if between_windows:
                self._at_common_point(self._core.together)
            return
        if self._signals.received is not None:
            self._save_and_pass_on()
            return
        if between_windows:
            updates, when = self._saved_at
            if self._pace.is_due(
                updates=self._loop.index - updates, seconds=time.monotonic() - when
            ):
                self._save_or_say(wait=self._wait)

    def _at_common_point(self, together: Together) -> None:
        """Save if any rank wants to, as all of them heard when they last closed a window."""
        if self.is_due_on_all(together):
            self._save_and_pass_on(wait=self._wait or together.any_wants_save)
            together.any_wants_save = False
        self.note_wish(together)

    def is_due_on_all(self, together: Together) -> bool:
        """Whether all ranks save at the next place between two windows that they share."""
        by_count = self._pace.is_due(updates=self._loop.index - self._saved_at[0], seconds=0.0)
        return together.any_wants_save or by_count

    def note_wish(self, together: Together) -> None:
        """Let the others hear whether this rank would like to save."""
        updates, when = self._saved_at
        is_late = self._pace.is_due(
            updates=self._loop.index - updates, seconds=time.monotonic() - when
        )
        together.wants_save = is_late or self._signals.received is not None

    @property
    def errand(self) -> str:
        """What this rank says when it saves with others."""
        return f"{errands.SAVE.about}{self._given}"

    def come_along(self, about: str) -> None:
        """Save because the others do, with what they have said of it."""
        self._save_and_pass_on(wait=not about.endswith(f"({errands.ASIDE})"))

    def at_failed_draw(self) -> None:
        """Save because the loader has raised: up to here nothing is lost.

        On one of several ranks there is nobody to save with.
        """
        if self._core.together is not None:
            return
        if state.why_not_resumable(self._loop) is None:
            self._save_and_pass_on()

    def _save_and_pass_on(self, *, wait: bool = True) -> None:
        """Save; if a signal has come, say that it is done, and let the signal do what it does."""
        number = self._signals.received
        writing = self._save_or_say(wait=wait or number is not None)
        if writing is not None and number is not None:
            sys.stderr.write(
                f"instep: saved after {writing.updates} updates: {writing.path} "
                f"({signal.Signals(number).name})\n"
            )
        self._signals.pass_on()

    def _save_or_say(self, *, wait: bool) -> Writing | None:
        """Save; if the disk does not let us, say so and go on: training is not worth less."""
        self._look_for_others()
        before, self._saved_at = self._saved_at, (self._loop.index, time.monotonic())
        try:
            writing = self._stepper.save(self._given, extra=states_of(self.extra), wait=wait)
        except CheckpointError as error:
            if not isinstance(error.__cause__, OSError):
                raise
            self._core.warn(
                f"no checkpoint after {self._loop.index} updates. {error.what}",
                why=f"{error.why} Training goes on.",
                fix=f"{error.fix} It is tried again when the next one is due.",
                more="autosave",
            )
            return None
        except WindowError:
            # A rank has not come. All are to save at the next place that they share.
            self._saved_at = before
            raise
        self._kept = writing.updates
        return writing

    def _look_for_others(self) -> None:
        """Say, once, that somebody else saves here: a job that was started twice, most likely."""
        desk = self._stepper._desk  # noqa: SLF001 -- what this stepper has written
        is_writing = desk.writing is not None and not desk.writing.is_done
        if self._knows_of_others or is_writing or self._stepper.ranks.rank:
            return
        mine, there = desk.seals.get(self.path, ""), claims.seal_of(self.path)
        if not mine or not there or mine == there:
            return
        self._knows_of_others = True
        self._core.warn(
            f"somebody else saves at {self.path}.",
            why="the checkpoint there is not the one that this run has put there: two runs replace "
            "each other's, and the next start goes on from whichever was the last.",
            fix="end the other run, if this job was started twice; give each run its own path.",
            more="autosave",
        )

    def _too_late(self, number: int) -> None:
        self._core.warn(
            f"{signal.Signals(number).name} came, and no safe point before its deadline.",
            why="a micro-batch was being worked on all the time, or nothing of the stepper ran. "
            f"The last checkpoint was made after {self._kept} updates.",
            fix="raise deadline= together with the scheduler's own, or use smaller micro-batches.",
            more="autosave",
        )

    def _resume(self) -> Loaded | None:
        how = "" if self._wait else errands.ASIDE
        saving.require_all(self._stepper, self._loop, errands.AUTOSAVE, self._given, how=how)
        if not saving.is_there(self._stepper, self._loop, self.path):
            return None
        try:
            return self._stepper.load(self._given)
        except CheckpointError as error:
            cause = error.__cause__
            is_missing = isinstance(cause, OSError) and cause.errno == errno.ENOENT
            is_damaged = isinstance(cause, EnvelopeError) and cause.kind in DAMAGED
            if isinstance(cause, EnvelopeError) and cause.kind == "foreign":
                raise _foreign(error) from cause
            if not (is_missing or is_damaged):
                raise
            if not saving.is_there(self._stepper, self._loop, self.path, previous=True):
                raise
            said = error
        before = disk.previous_of(self.path)
        anew = f" To begin anew, remove {before} as well." if is_missing else ""
        loaded = self._stepper.load(self._given, previous=True)
        self._core.warn(
            f"{said.what.removesuffix('.')}: this run goes on from the checkpoint before it, after "
            f"{loaded.updates} updates.",
            why=said.why.replace(" Nothing was loaded.", ""),
            fix=f"nothing to do, if you can do without the updates since.{anew}",
            more="autosave",
        )
        return loaded


def _foreign(error: CheckpointError) -> CheckpointError:
    return CheckpointError(
        error.what,
        why=f"{error.why} It is not overwritten, either.",
        fix="give autosave another path, or move it away.",
        more="autosave",
    )


def autosave_of(
    stepper: Stepper,
    loop: Loop,
    path: PathLike,
    *,
    every: int | None,
    seconds: float | None,
    extra: dict[str, Any] | None,
    wait: bool,
    signals: Sequence[int] | None,
    deadline: float,
) -> Autosave:
    """Check what was asked for, and begin."""
    if signals is None:
        signals = (signal.SIGTERM,)
    problem = _problem(every, seconds, signals, extra)
    if problem is not None:
        raise SetupError(
            problem,
            why="a run saves itself after so many updates, after so much time, and when a signal "
            "tells it to end.",
            fix="stepper.autosave(path, every=100), for example; seconds=600 with it or instead.",
            more="autosave",
        )
    return Autosave(
        stepper,
        loop,
        path,
        pace=Pace(every, seconds),
        extra={} if extra is None else extra,
        wait=wait,
        signals=signals,
        deadline=deadline,
    )


def _problem(every: object, seconds: object, signals: Sequence[int], extra: object) -> str | None:
    if every is None and seconds is None and not signals:
        return "nothing says when to save."
    if every is not None and (isinstance(every, bool) or not isinstance(every, int) or every < 1):
        return f"every is {every!r}, not a number of updates."
    if seconds is not None and not (isinstance(seconds, int | float) and seconds > 0):
        return f"seconds is {seconds!r}, not a time."
    if extra is not None and not isinstance(extra, dict):
        return f"extra is a {type(extra).__name__}, and has to be a dict."
    return None
