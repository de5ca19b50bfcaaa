"""The windows of one stepper on many ranks: begun, closed and given up together.

Until its close a window is a rank's own business, and may be replayed there. The close is one
round of talk, from which every rank concludes the same, and then one sum of the gradients.
"""

from __future__ import annotations

import contextlib
import math
import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from instep.engine import arithmetic
from instep.engine import gradients as grads
from instep.engine.close import act, one_factor, remember_references, terms_of
from instep.engine.memory import is_out_of_memory
from instep.engine.ranks.exchange import Exchange
from instep.engine.ranks.gathering import describe, representations_of_all
from instep.engine.ranks.headers import (
    Kind,
    PeerOutOfMemoryError,
    Said,
    Share,
    Verdict,
    is_agreed,
    mark,
    pack_flags,
    require_agreement,
    require_same_close,
    totals,
)
from instep.engine.ranks.ready import Ready
from instep.engine.ranks.reduction import Reduction, add_sparse, places_of
from instep.engine.ranks.sharded import ShardedBuffers
from instep.engine.ranks.wrapped import Quiet
from instep.engine.tally import read
from instep.errors import WindowError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import Tensor, nn

    from instep.engine.arithmetic import TermTotal
    from instep.engine.careful import CarefulStep
    from instep.engine.lane import Lane
    from instep.engine.ranks.sharded import Shards
    from instep.engine.ranks.world import Ranks
    from instep.engine.tally import Reading
    from instep.engine.update import Update


@dataclass(frozen=True, slots=True)
class Own:
    """What this rank brings to a close."""

    said: Said
    reading: Reading
    reduction: Reduction


@dataclass(frozen=True, slots=True)
class Turn:
    """Which optimizers close next, and whether the window is over then."""

    closing: frozenset[str]
    is_over: bool


class Together:
    """One stepper's part in the agreements of its ranks."""

    def __init__(
        self, ranks: Ranks, models: Sequence[nn.Module], shards: Shards | None = None
    ) -> None:
        self.ranks = ranks
        self.shards = shards
        self._quiet = Quiet(models)
        self.has_more = False
        """Whether this rank's loader has further batches, as it will say in the next round."""
        self.any_has_more = False
        """Whether any rank's has, as heard in the last one."""
        self.is_in_step = True
        """Whether the last round went well, and this rank has not given up since."""
        self.wants_save = False
        """Whether this rank would like to save; changes only where all ranks are between windows.
        """
        self.any_wants_save = False
        """Whether any rank would, as heard in the last round."""
        self._exchange = Exchange(ranks)
        self._given_up = 0
        self._loops = 0
        self._prints: tuple[list[int], int] = ([], 0)

    def waiting(self, what: str) -> contextlib.AbstractContextManager[None]:
        """Turn the error of a collective in here into one that says who did not come."""
        return self._exchange.waiting(what)

    # -- loops -----------------------------------------------------------------------------------

    def begin(self, sizes: Mapping[str, int], *, is_new: bool) -> bool:
        """Begin a loop, or go on with one; return whether any rank has a batch."""
        self._loops += is_new
        described = ", ".join(f"{size} for {name!r}" for name, size in sizes.items())
        about = f"loop {self._loops} in windows of {described}"
        self._round(Said(Kind.BEGIN, about, has_more=self.has_more), "the start of a loop")
        return self.any_has_more

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
        heard = self._heard(said, what)
        leading = [one for one in heard if one.kind is not Kind.NEXT or one.about]
        require_agreement(leading, what)
        self.is_in_step = True
        if leading:
            return Turn(frozenset({leading[0].about}), all(one.is_over for one in leading))
        return Turn(frozenset(other for one in heard for other in one.touched), is_over=True)

    def _heard(self, said: Said, what: str) -> list[Said]:
        self.is_in_step = False
        if self.wants_save:
            said = replace(said, wants_save=True)
        heard = self._exchange.round(said, what)
        self.any_wants_save = any(one.wants_save for one in heard)
        self.any_has_more = any(one.has_more for one in heard)
        return heard

    def _round(self, said: Said, what: str) -> list[Said]:
        heard = self._heard(said, what)
        require_agreement(heard, what)
        self.is_in_step = True
        return heard

    def begin_window(self) -> None:
        """Keep models from talking by themselves; of sharded ones, gather the parameters.

        Gathering needs every rank, so that it is asked first whether all are there.
        """
        self._exchange.prepare()
        self._quiet.begin()
        if self.shards is not None and not self.shards.is_begun:
            self.shards.reserve_whole()
            self._round(Said(Kind.OPEN, has_more=self.any_has_more), "the opening of a window")
            self.shards.gather()

    def end_window(self) -> None:
        """Let everything be as its user had it."""
        self._quiet.end()
        if self.shards is not None:
            self.shards.end()

    def go_on(self) -> None:
        """Have whole parameters again after the update of one of several optimizers."""
        if self.shards is not None:
            self.shards.gather()

    # -- giving up -------------------------------------------------------------------------------

    def give_up(self, reason: str, error: BaseException | None = None) -> None:
        """Tell the others that this rank's window is gone, unless they have the same error."""
        if is_agreed(error):
            return
        self._given_up += 1
        self.is_in_step = False
        if error is not None:
            first = str(error).splitlines()[0] if str(error) else ""
            reason = f"{type(error).__name__}: {first}"
        self._exchange.leave(reason)

    @contextlib.contextmanager
    def guard(self) -> Iterator[None]:
        """Tell the others of whatever is raised in here, once."""
        before = self._given_up
        try:
            yield
        except BaseException as error:
            if self._given_up == before:
                self.give_up("exception", error)
            self.end_window()
            raise

    # -- the close -------------------------------------------------------------------------------

    def close(self, lane: Lane, scale: float, *, keep_gradients: bool) -> Update:
        """Turn what all ranks have gathered into one update, the same on each of them.

        Whatever is raised, the window has ended and its gradients are cleared.
        """
        lane.is_closing = True
        try:
            update = self._closed(lane, scale)
        except BaseException:
            lane.end()
            raise
        lane.end(keep_gradients=keep_gradients)
        return update

    def _closed(self, lane: Lane, scale: float) -> Update:
        what = f"the close of {lane.name!r}"
        try:
            own = self._own(lane, scale)
        except RuntimeError as error:
            if is_out_of_memory(error) and lane.stepping is not None:
                said = Said(Kind.CLOSE, lane.name, out_of_memory=True, can_retry=True)
                with contextlib.suppress(PeerOutOfMemoryError):
                    self._agree(said, what, lane)
                mark(error)
            raise
        verdict = self._agree(own.said, what, lane)
        try:
            held, factor = self._added_up(lane, own, verdict, scale, what)
            raw_norm = self._norm(lane, held)
            remember_references(lane, verdict.terms, verdict.micro_batches)
            lane.micro_batches = verdict.micro_batches
            return act(lane, held, verdict.terms, factor=factor, raw_norm=raw_norm)
        except RuntimeError as error:
            if is_out_of_memory(error) and isinstance(lane.stepping, Ready):
                lane.stepping.say_so(error)
            if not any(verdict.holders) and isinstance(error, WindowError):
                mark(error)
            raise

    def _agree(self, said: Said, what: str, lane: Lane) -> Verdict:
        heard = self._round(said, what)
        require_same_close(heard, lane.name)
        return Verdict.of(heard, len(lane.buffers.members))

    def _own(self, lane: Lane, scale: float) -> Own:
        buffers = lane.buffers
        if lane.tallies:
            buffers.require_untouched()
        grads.coalesce(buffers.members)
        reading = read(lane.tallies, [])
        shares = _shares(reading, buffers.gradients())
        if not any(share.items > 0 for share in shares.values()):
            # What a mean over nothing has left is no part of anything.
            grads.clear(buffers.members)
        found = list(buffers.by_term().values())
        flags = [any(g is not None for g in row) for row in zip(*found, strict=True)]
        sparse = [
            index
            for index, row in enumerate(zip(*found, strict=True))
            if any(g is not None and g.is_sparse for g in row)
        ]
        said = Said(
            Kind.CLOSE,
            lane.name,
            has_more=self.has_more,
            print_of=self._print_of(buffers.members),
            micro_batches=lane.micro_batches,
            scale=scale,
            is_gathered=lane.is_gathered,
            is_one_factor=buffers.is_single,
            can_retry=lane.stepping is not None,
            terms=shares,
            holders=pack_flags(flags),
            sparse=tuple(sparse),
        )
        places = places_of(buffers.members, lane.accumulate_in)
        if isinstance(buffers, ShardedBuffers):
            buffers.reserve()
            places = [p for p, is_plain in zip(places, buffers.plain(), strict=True) if is_plain]
        return Own(said, reading, Reduction(places))

    def _print_of(self, members: Sequence[Tensor]) -> int:
        """Return a number that tells one list of parameters from another."""
        known, number = self._prints
        keys = list(map(id, members))
        if keys != known:
            text = ";".join(f"{tuple(p.shape)}{p.dtype}" for p in members)
            number = zlib.crc32(text.encode())
            self._prints = keys, number
        return number

    def _added_up(
        self, lane: Lane, own: Own, verdict: Verdict, scale: float, what: str
    ) -> tuple[list[Tensor], float]:
        """Add the gradients of all ranks; return them, and the factor that is still to come."""
        buffers = lane.buffers
        before = {
            name: verdict.terms[name] for name, share in own.said.terms.items() if share.items > 0
        }
        factor, later = 1.0, 1.0
        if not buffers.is_single:
            references = own.reading.references
            buffers.merge(
                {
                    name: arithmetic.normaliser(references[name], before[name].items) / scale
                    if name in before
                    else 0.0
                    for name in buffers.by_term()
                }
            )
        elif verdict.factor is not None:
            later = verdict.factor
        else:
            factor = one_factor(lane, before, own.reading.references) / scale
        with self._exchange.waiting(f"the sum of the gradients at {what}"):
            dense = [
                is_held and index not in verdict.sparse
                for index, is_held in enumerate(verdict.holders)
            ]
            if isinstance(buffers, ShardedBuffers):
                plain = buffers.plain()
                buffers.reduce(verdict.holders, factor)
                dense = [flag for flag, is_plain in zip(dense, plain, strict=True) if is_plain]
            own.reduction.run(dense, factor, self.ranks.group)
            for index in sorted(verdict.sparse):
                add_sparse(buffers.members[index], factor, self.ranks.group)
        return buffers.gradients(), later

    def _norm(self, lane: Lane, held: Sequence[Tensor]) -> float:
        if isinstance(lane.buffers, ShardedBuffers):
            return lane.buffers.norm()
        found = math.hypot(*grads.to_host(grads.folded(grads.norms(held))))
        return found if math.isfinite(found) else grads.exact_norm(held)

    # -- two passes ------------------------------------------------------------------------------

    def gather(self, own: Sequence[Tensor], lane: Lane, *, summed: bool) -> list[Tensor]:
        """Return the representations of all ranks' samples, attached to the graph of this rank's.

        Every rank comes here, also one without samples.
        """
        what = "the gathering of representations"
        heard = self._round(Said(Kind.SHAPES, shapes=describe(own)), what)
        device = lane.buffers.members[0].device
        with self._exchange.waiting(what):
            return representations_of_all(
                own,
                heard,
                rank=self.ranks.rank,
                group=self.ranks.group,
                device=device,
                summed=summed,
            )

    def add_counts(self, own: Mapping[str, float]) -> dict[str, float]:
        """Return the counts of all ranks; every rank comes here, also one that has none."""
        terms = {name: Share(0.0, 0.0, count, 1.0) for name, count in own.items()}
        heard = self._round(Said(Kind.COUNTS, terms=terms), "the counts of a loss")
        return {name: total.items for name, total in totals(heard).items()}

    # -- replays ---------------------------------------------------------------------------------

    def ready(self, step: CarefulStep) -> Ready:
        """Let an update begin only when every rank has the memory for it."""
        return Ready(self.agree_on_memory, step)

    def agree_on_memory(self, out_of_memory: bool) -> None:  # noqa: FBT001 -- a callback
        """Say whether this rank can begin its update; raise if one cannot."""
        said = Said(Kind.READY, out_of_memory=out_of_memory, can_retry=True)
        heard = self._heard(said, "the start of an update")
        require_agreement(heard, "the start of an update")
        self.is_in_step = True
        require_same_close(heard, "")


def _shares(reading: Reading, held: list[Tensor]) -> dict[str, Share]:
    found: dict[str, TermTotal] = terms_of(reading, held)
    return {
        name: Share(
            term.loss * term.items if term.items else 0.0,
            term.weighted * term.items,
            term.items,
            reading.references[name],
        )
        for name, term in found.items()
    }
