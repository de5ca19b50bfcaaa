"""The feed: micro-batches drawn from the user's loader, and the position to come back to.

A resumed run must see the batches it would have seen, and draw the random numbers it would have
drawn. Skipping is by count: put back the random state of the epoch's start, iterate the loader
anew, drop what was done, then put back the random state of now. That is bit-identical with and
without workers.

A loader that has a `state_dict()` of its own (torchdata's `StatefulDataLoader`) may be asked
instead: then nothing is drawn again, and what it does not save is not put back.

Batches are drawn before they are handed out in two cases only: the first of a window, to know
whether there is another window, and a whole window, if its items are counted ahead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence, Sized
from typing import TYPE_CHECKING, Any, Literal

import torch

from instep.engine import rng
from instep.engine.dealt import Listener, Pass, dealer_of
from instep.engine.ends import Expected
from instep.engine.position import (
    Mark,
    Position,
    other_loader,
    others_of,
    random_of,
    require_same_way,
)
from instep.errors import SetupError, said_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from instep.engine.position import ResumeBy

END = object()


class Feed:
    """One pass over a loader."""

    def __init__(
        self,
        loader: Iterable[Any],
        position: Position | None = None,
        *,
        by: ResumeBy = "count",
        generators: Mapping[str, torch.Tensor] | None = None,
        is_reused: bool = False,
        listener: Listener | None = None,
    ) -> None:
        """Begin it: at a saved position, or with generators as the epoch before has left them.

        is_reused: whether the epoch before, in another process, has left persistent workers.
        listener: who hears of loaders that are dealt out, and drawn from in here.
        """
        self.listener = listener or Listener(0)
        self._owner = _stateful(loader) if by == "loader" else None
        if position is not None:
            require_same_way(position, by)
        self._sources = rng.generators_of(loader)
        self._dealer, self._is_told = _dealer_of(loader), False
        self._epoch_random = self._prepared(position, generators or {})
        self._generators = self._own_generators()
        # Of several ranks, the body of a loop runs between a draw ahead and a save.
        self._keeps_others = self.listener.world > 1 and not getattr(loader, "num_workers", 0)
        self._loader, self._is_reused = loader, has_live_workers(loader)
        self._passed = getattr(dealer_of(loader), "instep_passed", None)
        was_reused = self._was_reused(position, is_reused=is_reused)
        if was_reused != self._is_reused:
            if self._passed is not None:
                # Its workers begin twice, and when they begin first nobody knows.
                self._passed.rest()
            self._match_workers(loader, is_reused=was_reused)
        if self._owner is not None and position is not None:
            self._owner.load_state_dict(position.loader)
        self._per_batch = _units_per_batch(loader, self._dealer)
        self._begins_at = 0 if position is None else position.begins_at
        self._is_over = False
        if self._begins_at:
            if self._dealer is None:
                why = "it was made by instep.distributed.shard, this one was not."
                raise other_loader(why, is_plain=True)
            self._dealer.begins_at = self._begins_at
        self._expected = Expected(loader) if self._owner is None else None
        self._batches = self._begun(loader)
        # Batches waiting, each with the random state before it was drawn.
        self._ahead: deque[tuple[Any, Any]] = deque()
        self._done = self._drawn = 0
        self._has_hand = False
        self._hand_drawn: Any = None
        self._hand_out: Any = None
        self._snapshot = rng.snapshot() if self._owner is None else self._mark
        self.on_failure: Callable[[], None] | None = None
        """Called when the loader has raised, before its error goes on."""
        self.failure = ""
        """What it raised last, in a line, to be told to other ranks."""
        if position is not None:
            self._return_to(position)

    def _prepared(
        self, position: Position | None, generators: Mapping[str, torch.Tensor]
    ) -> rng.RandomState:
        """Put back what the epoch's order is drawn from; return the random state of its start."""
        saved = generators if position is None else position.generators
        rest = self.listener.inside.expect(saved, is_resumed=position is not None)
        own = self.listener.known.begin(getattr(self._dealer, "serial", 0), self._sources)
        if position is None:
            # A new epoch may have another loader.
            states = rest if own is None else own
            self._put_back({n: s for n, s in states.items() if n in self._sources})
            self._settle(None)
            return rng.full_state()
        self._settle(position)
        self._put_back(rest, was_dealt=position.turns is not None)
        rng.restore(position.epoch_random)
        return position.epoch_random

    def _begun(self, loader: Iterable[Any]) -> Iterator[Any]:
        epoch = 0
        self.listener.inside.is_direct = hasattr(loader, "instep_tells")
        with self.listener:
            if self._passed is not None and not getattr(loader, "instep_tells", False):
                epoch = self._passed.begin()
            batches = iter(loader)
        if self._passed is not None:
            self._passed.wake()
        dealer = dealer_of(loader)
        if dealer is None:
            return batches
        # Somebody may have made another DataLoader of what deals out the samples.
        begun = batches if isinstance(batches, Pass) else Pass(batches, dealer, epoch)
        begun.told.serial = 0
        return begun

    def _settle(self, position: Position | None) -> None:
        """Let what deals out samples be ready for the epoch it was told, or that was saved."""
        if self._dealer is None:
            return
        if position is not None:
            turns = position.turns or {}
            is_told = bool(turns.get("is_told"))
            self._dealer.come_back(turns.get("epoch"), is_told=is_told)
        self._dealer.settle()
        self._is_told = bool(self._dealer.is_told)

    def _put_back(self, states: Mapping[str, torch.Tensor], *, was_dealt: bool = False) -> None:
        missing = sorted(states.keys() - self._sources.keys())
        if missing:
            why = f"it has no generator at {', '.join(missing)}, as it had then."
            raise other_loader(why, is_plain=was_dealt and self._dealer is None)
        for name, state in states.items():
            self._sources[name].set_state(state)

    def generators_left(self) -> dict[str, torch.Generator]:
        """Return the generators that the loader, and those inside, were given."""
        return self._sources | self.listener.inside.sources()

    def generators_now(self) -> dict[str, torch.Tensor]:
        """Return their states, and of others that the loops before have drawn from."""
        return rng.states_of(self.generators_left()) | self.listener.known.states()

    def _own_generators(self) -> dict[str, torch.Tensor]:
        return rng.states_of(self._sources)

    def _was_reused(self, position: Position | None, *, is_reused: bool) -> bool:
        if position is not None:
            return position.is_reused
        # A new epoch may have another loader.
        can_be = bool(getattr(self._loader, "persistent_workers", False)) and self._owner is None
        return self._is_reused or (is_reused and can_be)

    def leaves_workers(self) -> bool:
        """Whether the next epoch of this loader has the workers of this one."""
        return has_live_workers(self._loader)

    def _match_workers(self, loader: Any, *, is_reused: bool) -> None:
        """Draw what the saved epoch drew at its start, no more and no less.

        A DataLoader draws a seed for its workers when it starts them; persistent workers that are
        reused get none.
        """
        if is_reused:
            iter(loader)
            rng.restore(self._epoch_random)
            for name, generator in rng.generators_of(loader).items():
                generator.set_state(self._generators[name])
        else:
            torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
        self._is_reused = is_reused

    def _return_to(self, position: Position) -> None:
        for _ in range(position.skip if self._owner is None else 0):
            if self._pulled() is END:
                raise other_loader(f"it ended before batch {position.skip}, where that run was.")
        self._done = position.skip
        for state in position.redraw:
            rng.restore(state)
            self._draw()
        if position.is_over and self._owner is None:
            if self._pulled() is not END:
                raise other_loader(
                    f"it goes on after batch {self._drawn - 1}, where that one ended."
                )
            self._is_over = True
        for name, source in self.generators_left().items() if self._drawn else ():
            if name in (position.left or {}):
                source.set_state((position.left or {})[name])
        rng.restore(position.random)

    def _mark(self) -> Mark:
        return Mark(rng.snapshot()(), None if self._owner is None else self._owner.state_dict())

    def _draw(self, *, is_first: bool = False) -> bool:
        before = self._snapshot()
        if is_first and self._keeps_others:
            before = before if isinstance(before, Mark) else Mark(before, None)
            before = before._replace(others=rng.others())
        batch = self._next(before)
        if batch is END:
            return False
        self._ahead.append((batch, before))
        return True

    def _pulled(self) -> Any:
        with self.listener:
            batch = next(self._batches, END)
        if self._expected is not None:
            self._expected.begin()
        self._drawn += batch is not END
        return batch

    def _next(self, before: Any) -> Any:
        try:
            batch = self._pulled()
            if batch is END and self._expected is not None:
                self._expected.require(self._drawn)
            self._is_over, self.failure = batch is END, ""
        except BaseException as error:
            # Other ranks hear of sys.exit() and Ctrl-C, too; here they pass as they are.
            self.failure = said_of(error)
            if isinstance(error, Exception):
                # Nothing was drawn: a resumed run tries again, with the same random numbers.
                rng.restore(random_of(before))
                if self._expected is not None:
                    # Who goes on after it goes on without this batch.
                    self._expected.forget()
                if self.on_failure is not None:
                    self.on_failure()
            raise
        return batch

    def given_nothing(self) -> Literal["iterator", "empty"] | None:
        """Return why a loader has ended before its first batch, if that can be told."""
        if self._drawn:
            return None
        if self._batches is self._loader:
            return "iterator"
        try:
            is_empty = isinstance(self._loader, Sized) and not len(self._loader)
        except Exception:  # noqa: BLE001 -- a length may fail in any way, and only a hint needs it
            is_empty = False
        return "empty" if is_empty else None

    @property
    def has_given_all(self) -> bool:
        """Whether it is known, without drawing any more, that no batch is left."""
        known = None if self._expected is None else self._expected.batches()
        if known is None and isinstance(self._loader, Sequence):
            known = len(self._loader)
        return not self._ahead and known is not None and self._drawn >= known

    def draw_ahead(self, batches: int) -> bool:
        """Draw until so many wait, or the loader ends; return whether any waits."""
        is_first = True
        while len(self._ahead) < batches and self._draw(is_first=is_first):
            is_first = False
        return bool(self._ahead)

    def waiting(self) -> list[Any]:
        """Return the batches drawn and not yet handed out."""
        return [batch for batch, _ in self._ahead]

    def take(self) -> Any:
        """Hand out the next batch, or END."""
        if self._ahead:
            self._hand_out = self._snapshot()
            batch, self._hand_drawn = self._ahead.popleft()
        else:
            self._hand_out = None
            self._hand_drawn = self._snapshot()
            batch = self._next(self._hand_drawn)
            if batch is END:
                return END
        self._has_hand = True
        return batch

    def finish(self) -> None:
        """Note that the batch in hand has been worked on: a resumed run does not see it again."""
        if self._has_hand:
            self._has_hand = False
            self._done += 1

    @property
    def in_hand(self) -> bool:
        """Whether a batch was handed out on which no work was done yet."""
        return self._has_hand

    def position(self) -> Position:
        """Return where a resumed run continues; a batch in hand without work will come again."""
        now = rng.full_state()
        marks = [before for _, before in self._ahead]
        if self._has_hand:
            marks.insert(0, self._hand_drawn)
            # What torch has drawn since the batch was handed out belongs to work that comes again.
            now = {key: value for key, value in now.items() if key not in ("cpu", "cuda")}
            if self._hand_out is not None:
                now.update(random_of(self._hand_out))
        state = None
        if self._owner is not None:
            state = marks[0].loader if marks else self._owner.state_dict()
        return Position(
            self._done,
            [random_of(mark) | others_of(mark) for mark in marks],
            now,
            self._epoch_random,
            self._generators | self.listener.inside.states_at_start(),
            self._is_reused,
            state,
            self._begins_at,
            self._turns(),
            rng.states_of(self.generators_left()),
            self._is_over,
        )

    def _turns(self) -> dict[str, int] | None:
        if self._dealer is None or self._owner is not None:
            return None
        turns = {
            "world": self._dealer.instep_dealt_to,
            "per_batch": self._per_batch,
            "is_over": int(self._is_over),
        }
        if self._dealer.epoch is not None:
            turns.update(epoch=self._dealer.epoch, is_told=int(self._is_told))
        return turns


def _dealer_of(loader: Any) -> Any:
    """Return what deals out a loader's samples or batches to ranks, if anything does."""
    places = (loader, getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None))
    return next((place for place in places if hasattr(place, "begins_at")), None)


def _units_per_batch(loader: Any, dealer: Any) -> int:
    deals_samples = dealer is not None and dealer is getattr(loader, "sampler", None)
    # Without a size a loader gives its samples one by one.
    return int(loader.batch_size or 1) if deals_samples else 1


def _stateful(loader: Any) -> Any:
    if not all(callable(getattr(loader, name, None)) for name in ("state_dict", "load_state_dict")):
        raise SetupError(
            f'resume="loader" with a {type(loader).__name__}, which has no state_dict().',
            why="it asks the loader itself where it is.",
            fix='use torchdata\'s StatefulDataLoader, or resume="count", which works with any '
            "loader that gives the same batches again.",
            more="resume",
        )
    return loader


def has_live_workers(loader: object) -> bool:
    """Whether iterating this loader will reuse worker processes that are running already."""
    is_persistent = bool(getattr(loader, "persistent_workers", False))
    return is_persistent and getattr(loader, "_iterator", None) is not None
