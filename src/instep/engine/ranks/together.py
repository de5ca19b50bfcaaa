"""The windows of one stepper on many ranks: begun, closed and given up together.

Until its close a window is a rank's own business, and may be replayed there. The close is one
round of talk, from which every rank concludes the same, and then one sum of the gradients.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from instep.engine.ranks.alike import Alike, require_alike
from instep.engine.ranks.closing import Closing
from instep.engine.ranks.drift import Drift
from instep.engine.ranks.exchange import Exchange
from instep.engine.ranks.following import LOOP, Turn, has_followers
from instep.engine.ranks.gathering import SUM, Gathered, Representations, describe, linked
from instep.engine.ranks.headers import (
    Kind,
    Said,
    Share,
    agreed,
    is_agreed,
    ranks_that,
    require_agreement,
    require_nobody_failed,
    require_same_close,
    totals,
)
from instep.engine.ranks.padding import Padding, require_one_lane
from instep.engine.ranks.ready import Ready, with_room
from instep.engine.ranks.replaced import Places, require_same_places
from instep.engine.ranks.sharded import Shards
from instep.engine.ranks.streams import Streams
from instep.engine.ranks.wrapped import Quiet
from instep.errors import said_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch import Tensor, nn

    from instep.engine.careful import CarefulStep
    from instep.engine.lane import Lane
    from instep.engine.ranks.replaced import Lost
    from instep.engine.ranks.world import Ranks
    from instep.engine.update import Update


class Together:
    """One stepper's part in the agreements of its ranks."""

    def __init__(
        self, ranks: Ranks, models: Sequence[nn.Module], shards: Shards | None = None
    ) -> None:
        self.ranks = ranks
        self.shards = shards
        self._quiet = Quiet(models)
        self.padding: Padding | None = None
        """What keeps ranks in step where each backward is added up at once."""
        if shards is not None and shards.is_at_once:
            self.padding = Padding(shards.roots)
            shards.on_end = self.padding.end
        self._is_inside = False
        self.has_more = False
        """Whether this rank's loader has further batches, as it will say in the next round."""
        self.has_ended = False
        """Whether it has a loader, which has no more."""
        self.any_has_more = False
        """Whether any rank's has, as heard in the last one."""
        self.is_in_step = True
        """Whether the others wait for this rank's next word: the last round went well, or something
        was begun since, and this rank has not given up."""
        self.wants_save = False
        """Whether this rank would like to save; changes only where all ranks are between windows.
        """
        self.any_wants_save = False
        """Whether any rank would, as heard in the last round."""
        self._exchange = Exchange(ranks)
        self.torn = self._exchange.torn
        self._given_up = 0
        self.loops = 0
        """How many this rank has begun, also those that failed before all ranks had."""
        self.place: tuple[int, ...] = ()
        """The loop over `stepper.batches` that this rank is in, and the batch."""
        self.alike = Alike()
        self.drift = Drift(None if shards is None else shards.teams())
        self.streams = Streams(ranks.rank, ranks.world)
        self.places = Places(models, shards)
        self._lanes: list[Lane] = []
        self._closing = Closing(self)

    def waiting(self, what: str) -> contextlib.AbstractContextManager[None]:
        """Surround a collective: an error of it says what was waited for, and for whom."""
        return self._exchange.waiting(what)

    @classmethod
    def of(cls, ranks: Ranks, models: Sequence[nn.Module]) -> Together | None:
        """Return a stepper's part, if there are other ranks."""
        if ranks.is_alone:
            return None
        return cls(ranks, models, Shards(ranks, models) if ranks.kind == "sharded" else None)

    def join(self, lanes: Mapping[str, Lane]) -> None:
        """Let the windows of these optimizers be those of all ranks."""
        self._lanes = list(lanes.values())
        self.places.learn(self._lanes)
        if self.padding is not None:
            require_one_lane(lanes)
        for lane in lanes.values():
            if self.shards is not None:
                lane.buffers = self.shards.buffers(lane.optimizers, lane.accumulate_in)
            if self.padding is not None:
                lane.on_nothing = self.padding.backward_nothing

    # -- loops -----------------------------------------------------------------------------------

    def begin_loop(self) -> None:
        """Count a loop, before anything of it can fail; whatever was given up was before it."""
        self.loops += 1
        self.is_in_step = True

    def begin(self, sizes: Mapping[str, int]) -> bool:
        """Begin a loop, or go on with one; return whether any rank has a batch."""
        described = ", ".join(f"{size} for {name!r}" for name, size in sizes.items())
        about = f"{LOOP}{self.loops} in windows of {described}"
        said = Said(
            Kind.BEGIN,
            about,
            has_more=self.has_more,
            weights=self.weights_between(),
            streams=self.streams.news(),
        )
        what = "the start of a loop"
        heard = self.round(said, what)
        self.streams.require_same(heard, what)
        self.drift.require_same(heard, what)
        return self.any_has_more

    def weights_between(self) -> tuple[float, ...]:
        """Return what this rank says of its weights outside of a close."""
        return self.drift.between(self._lanes)

    def weights_at_close(self, lane: Lane) -> tuple[float, ...]:
        """Return what this rank says of its weights at a close, before its update."""
        return self.drift.at_close(lane, is_last=self.has_ended)

    def agree_on_next(self, name: str | None, touched: Sequence[str], *, is_over: bool) -> Turn:
        """Agree which optimizer closes next, where there are several.

        A rank whose loader has ended passes None and follows the others. When all do, everything
        that any of them has added to closes.
        """
        said = Said(
            Kind.NEXT,
            name or "",
            has_more=self.has_more,
            is_over=is_over,
            touched=tuple(touched),
        )
        what = "the end of a window" if name is None else f"the close of {name!r}"
        heard = self.hear(said, what)
        require_nobody_failed(heard, what)
        leading = [one for one in heard if one.kind is not Kind.NEXT or one.about]
        require_agreement(leading, what)
        self.is_in_step = True
        if leading:
            return Turn(frozenset({leading[0].about}), all(one.is_over for one in leading))
        return Turn(frozenset(other for one in heard for other in one.touched), is_over=True)

    def hear(
        self, said: Said, what: str, meanwhile: Callable[[], None] | None = None
    ) -> list[Said]:
        """Say something and hear everyone, whatever they have come for."""
        self.is_in_step = self._is_inside = False
        if self.wants_save or self.place:
            said = replace(said, wants_save=self.wants_save, place=self.place)
        heard = self._exchange.round(said, what, meanwhile)
        if has_followers(heard, what) and said.kind is not Kind.FOLLOW:
            heard = self._exchange.round(said, what)
        self.any_wants_save = any(one.wants_save for one in heard)
        self.any_has_more = any(one.has_more for one in heard)
        return heard

    def round(
        self, said: Said, what: str, meanwhile: Callable[[], None] | None = None
    ) -> list[Said]:
        """Say something and hear everyone, who have come for the same."""
        heard = self.hear(said, what, meanwhile)
        require_agreement(heard, what)
        self.is_in_step = True
        return heard

    def lost(self) -> Lost:
        """Return what this rank says of parameters that its models have no longer.

        Of all optimizers each time: whichever closes first, it is told before anything is added up.
        """
        return self.places.lost(self._lanes)

    def begin_window(self) -> None:
        """Keep models from talking by themselves; of sharded ones, gather the parameters.

        Gathering needs every rank, so that it is asked first whether all are there.
        """
        self._exchange.prepare()
        self._quiet.begin()
        self.is_in_step = True
        if self.shards is not None and not self.shards.is_begun:
            self.shards.reserve_whole()
            # Before anything is gathered or, in the first backward, already added up.
            lost = self.lost()
            said = Said(
                Kind.OPEN,
                has_more=self.any_has_more,
                alike=self.alike.of(self._lanes),
                lost=lost.number,
                replaced=lost.words,
            )
            heard = self.round(said, "the opening of a window")
            require_alike(heard, self._lanes)
            require_same_places(heard)
            self.shards.gather()
            if self.padding is not None:
                self.padding.begin()

    def end_window(self) -> None:
        """Let everything be as its user had it."""
        self._quiet.end()
        if self.shards is not None:
            self.shards.end()

    def go_on(self) -> None:
        """Have whole parameters again after the update of one of several optimizers."""
        if self.shards is not None:
            self.round(Said(Kind.OPEN, has_more=self.any_has_more), "the rest of a window")
            self.shards.gather()

    def has_batch(self, *, own: bool) -> bool:
        """Agree on a micro-batch that needs all ranks; a rank without one runs along.

        Returns whether any rank has one.
        """
        padding = self.padding
        assert padding is not None  # noqa: S101 -- asked for only then
        padding.next_batch()
        can_pad, (lost, words) = own or padding.can_run, self.lost()
        said = Said(Kind.BATCH, has_more=own, can_pad=can_pad, lost=lost, replaced=words)
        what = "a micro-batch"
        heard = self.round(said, what)
        # A rank without a layer would not come to what the others send for it in their forward.
        require_same_places(heard)
        stuck = [not one.can_pad for one in heard]
        if self.any_has_more and any(stuck):
            raise agreed(
                f"{ranks_that(stuck)} had no batch yet to run along with.",
                why='with sync="micro-batch" every forward needs all ranks; one without a batch '
                "runs its last one again for nothing, and has none. The window was thrown away.",
                fix='give every rank at least one batch, or pass sync="window".',
                more="ranks",
            )
        self._is_inside = self.any_has_more
        if self.any_has_more and not own:
            padding.run()
        return self.any_has_more

    def end_batch(self) -> None:
        """Note that this rank has run its part of a micro-batch, and nobody waits inside of it."""
        self._is_inside = False

    # -- giving up -------------------------------------------------------------------------------

    def give_up(
        self, reason: str, error: BaseException | None = None, kind: Kind = Kind.FAILED
    ) -> None:
        """Tell the others that this rank's window is gone, unless they know of it.

        A plain `for` is not told what it was left by; where a round has failed, all were.
        """
        if is_agreed(error) or not self.is_in_step:
            return
        self._given_up += 1
        self.is_in_step = False
        if error is not None:
            reason = said_of(error)
        if self._is_inside:
            # The others wait in the middle of a forward or backward, and would take a message of
            # ours for a part of it; they find out when this process ends, or by their timeout.
            self._exchange.note(reason)
            return
        self._exchange.leave(reason, kind)

    @contextlib.contextmanager
    def between_rounds(self, what: str) -> Iterator[None]:
        """Surround collectives that are no rounds, as those of a save; `what` is for errors.

        Who leaves them alone (an interrupt, a handler that exits) sends nothing any more: the
        others would take it for a part of what they wait for, and gloo ends their processes then.
        """
        self._is_inside = True
        try:
            with self.ranks.at_home():
                yield
        except BaseException as error:
            self._is_inside = not is_agreed(error)
            if self._is_inside:
                self._exchange.abandon(what, error)
            raise
        self._is_inside = False

    @contextlib.contextmanager
    def guard(self) -> Iterator[None]:
        """Tell the others of whatever is raised in here, once."""
        before = self._given_up
        self.is_in_step = True
        try:
            yield
        except BaseException as error:
            if self._given_up == before:
                self.give_up("exception", error)
            self.end_window()
            raise

    def close(self, lane: Lane, scale: float, *, keep_gradients: bool) -> Update:
        """Turn what all ranks have gathered into one update, the same on each of them.

        Whatever is raised, the window has ended and its gradients are cleared.
        """
        lane.is_closing = True
        try:
            update = self._closing.update(lane, scale, has_more=self.has_more)
        except BaseException:
            lane.end()
            raise
        lane.end(keep_gradients=keep_gradients)
        return update

    # -- two passes ------------------------------------------------------------------------------

    def gather(self, own: Sequence[Tensor], lane: Lane, *, summed: bool) -> Gathered:
        """Return the representations of all ranks' samples, attached to the graph of this rank's.

        Every rank comes here, also one without samples, which need not have a window open.
        """
        what = "the gathering of representations"
        how = SUM if summed else ""
        heard = self.round(Said(Kind.SHAPES, how, shapes=describe(own)), what)
        first = next((rank for rank, said in enumerate(heard) if said.shapes), self.ranks.rank)
        # The loss is the same on all ranks, and so is the gradient of what only it uses: one rank
        # has it, the others stop at their own representations.
        links = [] if first == self.ranks.rank else linked(own)
        found = with_room(
            self.round,
            lambda: Representations(
                [stand_in for _, stand_in in links] or own,
                heard,
                self.ranks,
                device=lane.optimizers[0].param_groups[0]["params"][0].device,
                summed=summed,
            ),
            what,
        )
        with self.waiting(what):
            leaves = found.gather()
        rows = leaves[0].shape[0] if leaves and not summed else None
        return Gathered(leaves, [pair for pair in links if pair[0].requires_grad], rows)

    def add_counts(self, own: Mapping[str, float]) -> dict[str, float]:
        """Return the counts of all ranks; every rank comes here, also one that has none."""
        terms = {name: Share(0.0, 0.0, count, 1.0) for name, count in own.items()}
        heard = self.round(Said(Kind.COUNTS, terms=terms), "the counts of a loss")
        return {name: total.items for name, total in totals(heard).items()}

    # -- replays ---------------------------------------------------------------------------------

    def ready(self, step: CarefulStep) -> Ready:
        """Let an update begin only when every rank has the memory for it."""
        return Ready(self.agree_on_memory, step)

    def agree_on_memory(self, out_of_memory: bool) -> None:  # noqa: FBT001 -- a callback
        """Say whether this rank can begin its update; raise if one cannot."""
        said = Said(Kind.READY, out_of_memory=out_of_memory, can_retry=True)
        heard = self.hear(said, "the start of an update")
        require_agreement(heard, "the start of an update")
        self.is_in_step = True
        require_same_close(heard, "")
