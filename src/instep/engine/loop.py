"""Where a stepper is: which window is open, which loops run, what is to be resumed."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from instep.engine import rng
from instep.engine.dealt import Known, Listener, refuse_a_part
from instep.engine.feed import Feed
from instep.engine.repeats import Repeats
from instep.engine.seeding import Anew, Seeding
from instep.errors import StateError, WindowError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from torch import Generator, Tensor

    from instep.engine.core import Core
    from instep.engine.position import ResumeBy
    from instep.engine.state import Resume
    from instep.engine.window import Window


@dataclass(eq=False)
class Run:
    """A loop over a loader that is under way, and the one around it, if any."""

    feed: Feed
    sizes: Mapping[str, int]
    outer: Run | None


class Loop:
    """One stepper's place in its training: at most one window open at a time."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.index = 0
        self.window: Window | None = None
        self.run: Run | None = None
        self.pending: Resume | None = None
        self.epoch = 0
        self.is_epoch_over = False
        """Whether the loop of this epoch has come to its end, or was left."""
        self.was_left = self.has_finished = False
        self.generators: dict[str, Tensor] = {}
        """The loader's own generators after the last loop: what the next order is drawn from."""
        self.left: dict[str, Generator] = {}
        """These generators themselves: a validation may draw from them before a run is saved."""
        self.left_workers = False
        """Whether the last loop's loader has workers that stay, who have their seeds already."""
        self.known = Known()
        """The loaders that its loops have drawn from."""
        self.seeds = Seeding()
        """Whether its loaders are made for their epochs, each with a seed."""
        self.anew = Anew()
        """Whether they are dealt out anew for each, so that no workers stay."""
        self.repeats = Repeats()
        """The orders of its loaders."""
        self.are_loaded = False
        """Whether these come from a saved state, and the next loop is to begin with them."""

    def feed(self, loader: Iterable[Any], resumed: Resume | None, *, by: ResumeBy) -> Feed:
        """Begin a pass over a loader, where it was saved or after the epoch that was."""
        together = self.core.together
        world = 1 if together is None else together.ranks.world
        refuse_a_part(loader, world)
        if resumed is None and (together is None or together.ranks.rank == 0):
            self._look_for_repeats(loader)
        self.seeds.look(rng.generators_of(loader), self.generators)
        self.anew.look(loader)
        is_next = self.are_loaded and resumed is None
        feed = Feed(
            loader,
            None if resumed is None else resumed.position,
            by=by,
            generators=self.generators if is_next and not self.seeds.are_new else None,
            is_reused=self.left_workers and is_next,
            listener=Listener(
                world, None if together is None else together.streams.follow, self.known
            ),
        )
        self.are_loaded = False
        return feed

    def _look_for_repeats(self, loader: Iterable[Any]) -> None:
        problem = self.repeats.look(loader, self.epoch)
        if problem:
            # The same for every number of loops, so that it is said once.
            self.core.warn(
                "a DistributedSampler gives every epoch in the same order.",
                why=f"it gave {problem}: its order is one of seed and epoch, and nobody has told "
                "it the epoch.",
                fix="call loader.sampler.set_epoch(epoch) before the loop of each epoch, or use "
                "instep.distributed.shard(loader), which needs no call and repeats no samples; "
                "shuffle=False says that one order is meant.",
                more="ranks",
            )

    def epoch_to_save(self) -> int:
        """Return the epoch that a resumed run begins with: the next, once this one's loop is over.

        A loop may be left by `break`, and its epoch is over then; in an `except` block it was left
        by an error, and the place in its data is gone.
        """
        if not self.is_epoch_over or self.run is not None or self.pending is not None:
            return self.epoch
        if self.was_left and sys.exc_info()[0] is not None:
            self.core.warn(
                "a checkpoint was made after an error had left the loop.",
                why="the place in its data went with the loop, so that its epoch begins anew when "
                "this is loaded.",
                fix="save inside the loop, or use stepper.autosave; for Ctrl-C, with "
                "signals=[signal.SIGINT].",
                more="resume",
            )
            return self.epoch
        return self.epoch + 1

    def generators_to_save(self) -> dict[str, Tensor]:
        """Return what the order of the next loop is drawn from, as it is now."""
        if self.run is not None or self.are_loaded or self.pending is not None:
            return self.generators
        return self.generators | rng.states_of(self.left) | self.known.states()

    def epochs(self, count: int) -> Iterator[int]:
        """Count epochs, from the one that was saved."""
        while self.epoch < count:
            self.is_epoch_over = False
            yield self.epoch
            self.epoch += 1
        self.is_epoch_over = False

    def safe_point(self) -> None:
        """Tell whoever saves that the run can be continued from here, between two windows."""
        if self.core.autosave is not None:
            self.core.autosave.at_safe_point(between_windows=True)

    def _failed_draw(self) -> None:
        if self.core.autosave is not None:
            self.core.autosave.at_failed_draw()

    def require_no_window(self, what: str = "a window was opened") -> None:
        """Raise if a window is open: windows of one stepper do not nest."""
        if self.window is not None and self.window.is_open:
            raise WindowError(
                f"{what} inside a window.",
                why=f"window {self.window.index} is open, and its gradients would mix with the new "
                "one's.",
                fix="let its loop end, or call window.close() or window.discard() first. For "
                "several optimizers pass them to one Stepper.",
                more="window-states",
            )

    def begin(self, sizes: Mapping[str, int] | None) -> Resume | None:
        """Begin a loop: return the saved place to continue from, if one was loaded.

        It stays pending until a window has opened, so that an error on the way loses nothing.
        """
        self.require_no_window()
        self.core.scaling.read()
        self.core.left_at.clear()
        resumed = self.pending
        if resumed is not None and sizes is None and not resumed.has_open_window:
            # A position in a loader waits for its loop; a window by hand may come before it.
            return None
        if resumed is not None and resumed.sizes != (None if sizes is None else dict(sizes)):
            raise StateError(
                f"the state was saved in {_described(resumed.sizes)}, this is {_described(sizes)}.",
                why="it was saved inside a loop, and continues only in the same one.",
                fix="start the loop it was saved in, or call stepper.discard() to start anew.",
                more="resume",
            )
        return resumed

    def start(self, feed: Feed, sizes: Mapping[str, int]) -> Run:
        """Note that a loop over a loader is under way."""
        self.run = Run(feed, sizes, self.run)
        self.has_finished = False
        feed.on_failure = self._failed_draw
        return self.run

    def stop(self, run: Run) -> None:
        """Note that it is over, together with whatever loops were left open inside it."""
        run.feed.listener.is_open = False
        inside = self.run
        while inside is not None and inside is not run:
            inside = inside.outer
        if inside is run:
            self.run = run.outer
            self.generators = run.feed.generators_now()
            self.left = run.feed.generators_left()
            self.left_workers = run.feed.leaves_workers() and not self.anew.is_anew
            self.is_epoch_over = True
            self.was_left = not self.has_finished

    def open(self, window: Window, resumed: Resume | None) -> Window:
        """Make this the open window: every lane begins, or continues where it was saved."""
        self.require_no_window()
        try:
            if self.core.together is not None:
                self.core.together.begin_window()
            for lane in window.lanes:
                if resumed is None or resumed.opens(lane):
                    window.open_lane(lane)
                if resumed is not None:
                    resumed.restore(lane)
        except BaseException:
            self.core.discard(window.lanes, "exception")
            if self.core.together is not None:
                self.core.together.end_window()
            raise
        self.window = window
        if resumed is not None:
            self.pending = None
        self.index += 1
        return window

    def mention_nothing(self, feed: Feed) -> None:
        """Say that a loop was none, because its loader gave nothing: an epoch was lost, perhaps."""
        kind = feed.given_nothing()
        if kind is None:
            return
        is_iterator = kind == "iterator"
        self.core.warn(
            "the loader gave no batch, so that nothing was done.",
            why="it is an iterator, which gives its batches once, and it was at its end."
            if is_iterator
            else "its length is 0.",
            fix="pass a loader that begins anew in each epoch (a DataLoader, a list), or make the "
            "generator inside of the loop over epochs."
            if is_iterator
            else "look at its dataset; with drop_last=True, fewer samples than a batch are none.",
            more="window-size",
        )

    def finish(self) -> None:
        """Note that a loader ended."""
        self.has_finished = True
        self.pending = None
        self.core.conclude_all()
        if self.core.recorder is not None:
            self.core.recorder.epoch_ended()

    def discard(self) -> None:
        """Throw away the open window and a loaded one; a loop that is under way goes on."""
        self.pending = None
        if self.window is not None and self.window.is_open:
            self.window.discard()


def _described(sizes: Mapping[str, int] | None) -> str:
    if sizes is None:
        return "a window opened by hand"
    if not sizes:
        return "a loop over stepper.batches()"
    return f"windows of {', '.join(f'{size} for {name!r}' for name, size in sizes.items())}"
