"""The close of a window on many ranks: one round, one sum, and the update of one process.

What a rank brings is prepared before the round, also the memory: after it nothing may fail on one
rank alone.
"""

from __future__ import annotations

import contextlib
import math
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from instep.engine import arithmetic
from instep.engine import gradients as grads
from instep.engine.close import act, one_factor, remember_references, terms_of
from instep.engine.memory import is_out_of_memory
from instep.engine.ranks import aside
from instep.engine.ranks.alike import require_alike
from instep.engine.ranks.drift import weights_of
from instep.engine.ranks.headers import (
    Kind,
    PeerOutOfMemoryError,
    Said,
    Share,
    Verdict,
    agreed,
    is_agreed,
    mark,
    pack_flags,
    require_same_close,
)
from instep.engine.ranks.ready import Ready
from instep.engine.ranks.reduction import Reduction, add_sparse, places_of
from instep.engine.ranks.replaced import require_same_places
from instep.engine.ranks.sharded import ShardedBuffers
from instep.engine.tally import read
from instep.errors import WindowError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from instep.engine.arithmetic import TermTotal
    from instep.engine.lane import Lane
    from instep.engine.ranks.together import Together
    from instep.engine.tally import Reading
    from instep.engine.update import Update


@dataclass(frozen=True, slots=True)
class Own:
    """What this rank brings to a close."""

    said: Said
    reading: Reading
    reduction: Reduction


class Closing:
    """The closes of one stepper's windows."""

    def __init__(self, together: Together) -> None:
        self._together = together
        self._prints: tuple[list[int], int] = ([], 0)
        self._guesses: dict[str, list[bool]] = {}
        """Which gradients were added up at an optimizer's last close."""

    def update(self, lane: Lane, scale: float, *, has_more: bool) -> Update:
        """Agree, add up, and update."""
        what = f"the close of {lane.name!r}"
        try:
            own = self._own(lane, scale, has_more=has_more)
        except RuntimeError as error:
            if is_out_of_memory(error) and lane.stepping is not None:
                said = Said(Kind.CLOSE, lane.name, out_of_memory=True, can_retry=True)
                with contextlib.suppress(PeerOutOfMemoryError):
                    self._agree(said, what, lane)
                mark(error)
            raise
        guess = self._guesses.get(lane.name)
        is_single = lane.buffers.is_single

        def pack() -> None:
            # Packed while the header travels, as if all had the gradients that they had before.
            if guess is not None and is_single:
                own.reduction.pack(guess)

        verdict = self._agree(own.said, what, lane, pack)
        self._together.drift.note_close(lane.name)
        is_added_up = False
        try:
            held, factor = self._added_up(lane, own, verdict, scale, what)
            is_added_up = True
            raw_norm = self._norm(lane, held, what)
            remember_references(lane, verdict.terms, verdict.micro_batches)
            lane.micro_batches = verdict.micro_batches
            return act(lane, held, verdict.terms, factor=factor, raw_norm=raw_norm)
        except BaseException as error:
            if isinstance(lane.stepping, Ready) and is_out_of_memory(error):
                lane.stepping.say_so(error)
            if not any(verdict.holders) and isinstance(error, WindowError):
                mark(error)
            if is_added_up and not is_agreed(error):
                self._together.torn.note(lane.name, error)  # the others go on to update
            raise

    def _agree(
        self, said: Said, what: str, lane: Lane, meanwhile: Callable[[], None] | None = None
    ) -> Verdict:
        heard = self._together.round(said, what, meanwhile)
        require_same_close(heard, lane.name)
        require_alike(heard, [lane])
        require_same_places(heard)
        self._together.streams.require_same(heard, what)
        self._together.drift.require_same(heard, what)
        if self._together.drift.is_suspect(heard):
            self._look_closer(what, lane, has_more=said.has_more)
        return Verdict.of(heard, len(lane.buffers.members))

    def _look_closer(self, what: str, lane: Lane, *, has_more: bool) -> None:
        """Compare all weights, because a few differ; all ranks have heard so, and come here."""
        drift = self._together.drift
        said = Said(Kind.WEIGHTS, lane.name, has_more=has_more, weights=drift.all_of(lane))
        drift.require_same(self._together.round(said, what), what)

    def _own(self, lane: Lane, scale: float, *, has_more: bool) -> Own:
        buffers = lane.buffers
        if lane.tallies:
            buffers.require_untouched()
        grads.coalesce(buffers.members)
        reading = read(lane.tallies, [])
        # Where others' backwards reach this rank, too, gradients may come without one of its own.
        is_alone = self._together.padding is None
        shares = _shares(reading, buffers.gradients() if is_alone else [])
        if is_alone and not any(share.items > 0 for share in shares.values()):
            # What a mean over nothing has left is no part of anything.
            grads.clear(buffers.members)
        found = list(buffers.by_term().values())
        flags = [any(g is not None for g in row) for row in zip(*found, strict=True)]
        sparse = [
            index
            for index, row in enumerate(zip(*found, strict=True))
            if any(g is not None and g.is_sparse for g in row)
        ]
        lost = self._together.lost()
        said = Said(
            Kind.CLOSE,
            lane.name,
            has_more=has_more,
            print_of=self._print_of(lane),
            weights=self._together.weights_at_close(lane),
            glance=self._together.drift.glance(lane),
            alike=self._together.alike.of([lane]),
            lost=lost.number,
            replaced=lost.words,
            streams=self._together.streams.news(),
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
        return Own(said, reading, Reduction(places, self._guesses.get(lane.name, ())))

    def _print_of(self, lane: Lane) -> int:
        """Return a number that tells one list of parameters from another.

        At an optimizer's first close their values count, too: who loads a checkpoint on one rank
        only, or builds a plain model with other random numbers, would train different models.
        """
        members = lane.buffers.members
        known, number = self._prints
        keys = list(map(id, members))
        if keys != known:
            text = ";".join(f"{tuple(p.shape)}{p.dtype}" for p in members)
            number = zlib.crc32(text.encode())
            self._prints = keys, number
        is_first = not self._together.drift.has_closed(lane.name)
        if is_first and self._together.shards is None:
            # Their bits alone: sums are rounded by each kind of device in its own way.
            number = zlib.crc32(repr(weights_of(members)[:1]).encode(), number)
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
        elif self._together.padding is not None and verdict.has_items and any(verdict.holders):
            raise agreed(
                "the ranks have weighed their losses by different references.",
                why='with sync="micro-batch" they are added up at once, and cannot be brought in '
                "line afterwards. The window was thrown away.",
                fix="load the same state of the stepper on every rank.",
                more="ranks",
            )
        else:
            factor = one_factor(lane, before, own.reading.references) / scale
        with self._together.waiting(f"the sum of the gradients at {what}"):
            dense = [
                is_held and index not in verdict.sparse
                for index, is_held in enumerate(verdict.holders)
            ]
            if isinstance(buffers, ShardedBuffers):
                plain = buffers.plain()
                buffers.reduce(verdict.holders, factor)
                dense = [flag for flag, is_plain in zip(dense, plain, strict=True) if is_plain]
            self._guesses[lane.name] = dense
            own.reduction.run(dense, factor, self._together.ranks.group)
            for index in sorted(verdict.sparse):
                add_sparse(buffers.members[index], factor, self._together.ranks.group)
        return buffers.gradients(), later

    def _norm(self, lane: Lane, held: Sequence[Tensor], what: str) -> float:
        if isinstance(lane.buffers, ShardedBuffers):
            try:
                return lane.buffers.norm()
            except aside.HookError as error:
                own = error.own
            raise aside.told(self._together, own, what)
        found = math.hypot(*grads.to_host(grads.folded(grads.norms(held))))
        return found if math.isfinite(found) else grads.exact_norm(held)


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
