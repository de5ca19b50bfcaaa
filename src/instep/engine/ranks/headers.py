"""What ranks tell each other, and what follows from all of it: plain numbers in, plain numbers out.

Every agreement of ranks is one round, in which each says one `Said` and hears all. `Verdict` is
what everyone concludes, the same everywhere; so is every error raised here.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from instep.engine.arithmetic import TermTotal, shared_normaliser
from instep.errors import WindowError

if TYPE_CHECKING:
    from collections.abc import Sequence


class Kind(IntEnum):
    """What a rank has come for."""

    FAILED = 0
    """It has given up what it was doing; `about` says why."""
    BEGIN = 1
    """It begins a loop, or goes on with one after a window that was thrown away."""
    NEXT = 2
    """It is about to close one of several optimizers, `about`; or none, and follows the others."""
    CLOSE = 3
    """It closes the window of an optimizer, `about`."""
    READY = 4
    """It has everything that the update needs, or ran out of memory on the way there."""
    COUNTS = 5
    """It tells its counts before a backward that needs those of all ranks."""
    OPEN = 6
    """It opens a window, for which parameters that are sharded are gathered."""
    BATCH = 7
    """It is about to run a micro-batch whose gradients are added up at once, or has none."""
    SHAPES = 8
    """It is about to share representations, of these shapes."""
    WEIGHTS = 9
    """It tells of all its weights, because a few of them differ between ranks."""
    FOLLOW = 10
    """It has no batch left, and comes along to what the others do (`following`)."""
    LEFT = 11
    """It has left a loop after its last batch; `about` says how."""


LEAVING = frozenset({Kind.FAILED, Kind.LEFT})
"""What a rank says on its way out: it waits for no answer, and says no more."""


class Share(NamedTuple):
    """One term of the loss on one rank."""

    summed: float
    """Its loss, summed over the rank's items."""
    weighted: float
    """The same with weights."""
    items: float
    reference: float
    """What the seeds of its backwards were divided by."""


@dataclass(frozen=True, slots=True)
class Said:
    """What one rank says in a round."""

    kind: Kind
    about: str = ""
    place: tuple[int, ...] = ()
    """The number of its loop over `stepper.batches`, and that of its batch."""
    has_more: bool = False
    """Whether its loader has further batches."""
    wants_save: bool = False
    """Whether it would like to save a checkpoint as soon as all can."""
    is_over: bool = False
    """Whether, as far as it knows, this is the last close of its window."""
    streams: list[list[int]] = field(default_factory=list)
    """What there is to say of loaders that `shard` deals out, and was not said before."""
    touched: tuple[str, ...] = ()
    """The optimizers whose windows it has added to."""
    print_of: int = 0
    """A fingerprint of the parameters, the same on all ranks if the models are."""
    weights: tuple[float, ...] = ()
    """Two numbers of its weights, if they are compared now."""
    glance: int = 0
    """A number of a few of its weights; 0: it has not looked."""
    alike: str = ""
    """Numbers of what the optimizers were told, the same on all ranks if that is."""
    lost: str = ""
    """A number of what its model has no longer, and its optimizers have; empty for nothing."""
    replaced: str = ""
    """The same in words: what happened to the first of them."""
    micro_batches: int = 0
    scale: float = 1.0
    is_gathered: bool = False
    """Whether its loss is that of all ranks' samples, so that all ranks tell of the same one."""
    is_one_factor: bool = False
    """Whether one factor makes all its gradients a mean."""
    can_pad: bool = True
    """Whether it has what it takes to run along where it has no batch."""
    out_of_memory: bool = False
    can_retry: bool = False
    """Whether it can replay its window."""
    terms: dict[str, Share] = field(default_factory=dict)
    holders: str = ""
    """Which parameters have a gradient: a digit in base 16 for four of them; "*" for all."""
    sparse: tuple[int, ...] = ()
    """Which of these gradients are sparse."""
    shapes: list[list[Any]] = field(default_factory=list)
    """Shape and type of each tensor that is to be shared."""

    def pack(self) -> bytes:
        """Write it as bytes; what has its usual value is left out.

        >>> Said(Kind.NEXT, "g", has_more=True).pack()
        b'{"kind":2,"about":"g","has_more":true}'
        """
        usual = asdict(_USUAL)
        told = {k: v for k, v in asdict(self).items() if k == "kind" or v != usual[k]}
        return json.dumps(told, separators=(",", ":")).encode()


_USUAL = Said(Kind.FAILED)


def unpack(packed: bytes) -> Said:
    """Read what `Said.pack` wrote; floats come back bit for bit."""
    told = json.loads(packed)
    told["kind"] = Kind(told["kind"])
    for name in ("place", "touched", "sparse", "weights"):
        told[name] = tuple(told.get(name, ()))
    told["terms"] = {name: Share(*share) for name, share in told.get("terms", {}).items()}
    return Said(**told)


def pack_flags(flags: Sequence[bool]) -> str:
    """Write which of many are set.

    >>> pack_flags([True, True]), pack_flags([True, False, False, False, True]), pack_flags([])
    ('*', '11', '')
    """
    if flags and all(flags):
        return "*"
    number = sum(1 << index for index, flag in enumerate(flags) if flag)
    return f"{number:x}" if number else ""


def unpack_flags(packed: str, count: int) -> list[bool]:
    """Read what `pack_flags` wrote about this many.

    >>> unpack_flags("11", 5), unpack_flags("*", 2), unpack_flags("", 1)
    ([True, False, False, False, True], [True, True], [False])
    """
    if packed == "*":
        return [True] * count
    number = int(packed or "0", 16)
    return [bool(number >> index & 1) for index in range(count)]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What all ranks conclude from a close."""

    terms: dict[str, TermTotal]
    """The losses of the whole window, over all ranks."""
    micro_batches: int
    holders: list[bool]
    """Which parameters have a gradient on any rank."""
    sparse: frozenset[int]
    """Which of these gradients are sparse on any rank."""
    factor: float | None
    """What makes the sum over ranks a mean, if it is the same everywhere; None: each has its own,
    and multiplies before the sum."""

    @property
    def has_items(self) -> bool:
        """Whether there is anything in the window that counts, on any rank."""
        return any(total.items for total in self.terms.values())

    @classmethod
    def of(cls, heard: Sequence[Said], count: int) -> Verdict:
        """Conclude, for this many parameters."""
        holders = [False] * count
        for said in heard:
            if said.holders:
                mine = unpack_flags(said.holders, count)
                holders = [a or b for a, b in zip(holders, mine, strict=True)]
        terms = totals(heard)
        return cls(
            terms=terms,
            micro_batches=sum(said.micro_batches for said in heard),
            holders=holders,
            sparse=frozenset(index for said in heard for index in said.sparse),
            factor=common_factor(heard, terms),
        )


def totals(heard: Sequence[Said]) -> dict[str, TermTotal]:
    """Add up the terms of all ranks; of losses that are the same one everywhere, take one."""
    telling = [said for said in heard if said.terms]
    if telling and telling[0].is_gathered:
        telling = telling[:1]
    names = dict.fromkeys(name for said in telling for name in said.terms)
    found: dict[str, TermTotal] = {}
    for name in names:
        shares = [said.terms[name] for said in telling if name in said.terms]
        counted = [share for share in shares if share.items > 0]
        items = math.fsum(share.items for share in counted)
        if not items:
            found[name] = TermTotal(math.nan, 0.0, 0.0)
            continue
        summed = sum(share.summed for share in counted)
        weighted = sum(share.weighted for share in counted)
        found[name] = TermTotal(summed / items, items, weighted / items)
    return found


def common_factor(heard: Sequence[Said], terms: dict[str, TermTotal]) -> float | None:
    """Return the factor of all ranks, if all that have gradients have the same."""
    factors: set[float] = set()
    for said in heard:
        if not said.holders:
            continue
        own = {
            share.reference / terms[name].items / said.scale
            for name, share in said.terms.items()
            if share.items > 0
        }
        if not said.is_one_factor or len(own) > 1:
            return None
        factors |= own
    return factors.pop() if len(factors) == 1 else None


def require_one_factor(heard: Sequence[Said], terms: dict[str, TermTotal]) -> None:
    """Raise if a rank has added terms into one buffer that need different factors."""
    for said in heard:
        own = [
            share.reference / terms[name].items
            for name, share in said.terms.items()
            if share.items > 0
        ]
        if said.is_one_factor and shared_normaliser(own) is None:
            raise agreed(
                "the counts given ahead and the counts used differ between the terms.",
                why="all terms share one gradient buffer, which cannot be normalised for each of "
                "them afterwards. The window was thrown away.",
                fix="return the counts that the loss divides by.",
                more="terms",
            )


class PeerOutOfMemoryError(torch.OutOfMemoryError):
    """Another rank has no memory for the close of this window: all of them replay it."""


def agreed(what: str, *, why: str, fix: str, more: str) -> WindowError:
    """Return an error that every rank raises in the same place, so that none has to be told."""
    error = WindowError(what, why=why, fix=fix, more=more)
    mark(error)
    return error


def mark(error: BaseException) -> None:
    """Note that all ranks have this error."""
    error.is_agreed = True  # type: ignore[attr-defined]


def is_agreed(error: BaseException | None) -> bool:
    """Whether all ranks have this error."""
    return getattr(error, "is_agreed", False)


def require_nobody_failed(heard: Sequence[Said], doing: str) -> None:
    """Raise if a rank has given up.

    Who has left a loop after its last batch has, if there is anything left to do for the others.
    """
    is_over = all(said.kind in (Kind.FOLLOW, Kind.LEFT) for said in heard)
    failed = [said.kind in LEAVING and not is_over for said in heard]
    if any(failed):
        reasons = "; ".join(
            f"rank {rank}: {said.about.rstrip('.')}"
            for rank, said in enumerate(heard)
            if failed[rank]
        )
        raise agreed(
            f"{ranks_that(failed)} gave up, so {doing} did not happen on any rank.",
            why=f"{reasons}. A window is one update of all ranks: without the part of one it would "
            "be another update. It was thrown away.",
            fix="mend what failed there; its own output has the whole error.",
            more="ranks",
        )


def require_agreement(heard: Sequence[Said], doing: str) -> None:
    """Raise unless all ranks are there for the same thing, and none has failed.

    Who comes along to whatever the others do is not asked.
    """
    require_nobody_failed(heard, doing)
    if len({(said.kind, said.about) for said in heard if said.kind is not Kind.FOLLOW}) > 1:
        came = "; ".join(
            f"rank {rank} for {said.kind.name.lower()} {said.about!r}"
            for rank, said in enumerate(heard[:8])
        )
        raise agreed(
            "the ranks are not in the same place of the program.",
            why=f"they came to one agreement for different things: {came}. The window was thrown "
            "away.",
            fix="let every rank run the same loops with the same sizes, and close the same "
            "optimizers in the same order; only the data differ. What saves or loads is called on "
            "every rank, without `if rank == 0`.",
            more="ranks",
        )


def require_room(heard: Sequence[Said], doing: str) -> None:
    """Raise if a rank has run out of memory."""
    short = [said.out_of_memory for said in heard]
    if any(short):
        raise agreed(
            f"{ranks_that(short)} ran out of memory at {doing}.",
            why="the update of all ranks needs what all have. The window was thrown away.",
            fix='leave more memory there; stepper.step(..., split=instep.Micro("auto")) retries.',
            more="ranks",
        )


def require_same_close(heard: Sequence[Said], lane: str) -> None:
    """Raise unless all ranks close the window of the same thing, and have the memory for it."""
    short = [said.out_of_memory for said in heard]
    if any(short):
        if all(said.can_retry for said in heard):
            peer = PeerOutOfMemoryError(f"{ranks_that(short)} ran out of memory at the close")
            mark(peer)
            raise peer
        require_room(heard, f"the close of {lane!r}")
    compared: dict[str, list[float]] = {
        "parameters": [said.print_of for said in heard],
        "loss scales": [said.scale for said in heard],
    }
    for what, values in compared.items():
        other = [value != values[0] for value in values]
        if any(other):
            raise agreed(
                f"{ranks_that(other)} and rank 0 have different {what} in {lane!r}.",
                why="the optimizers of all ranks hold the same parameters in the same order, begin "
                "with the same values, and scale their losses alike. The window was thrown away.",
                fix="build model, optimizer and scaler the same way on every rank, and load the "
                "same state everywhere.",
                more="ranks",
            )
    telling = [said for said in heard if said.terms]
    if len({said.is_gathered for said in telling}) > 1:
        raise agreed(
            "some ranks gathered their representations and some did not.",
            why="with gather=True the loss is that of all ranks' samples, and counted once. The "
            "window was thrown away.",
            fix="pass gather=True on every rank, or on none.",
            more="ranks",
        )
    _require_one_loss(heard)
    require_one_factor(heard, totals(heard))


def _require_one_loss(heard: Sequence[Said]) -> None:
    """Raise if a loss over the samples of all ranks counts others on one rank than on another."""
    counts = [{name: share.items for name, share in said.terms.items()} for said in heard]
    known = [found for found in counts if found]
    other = [bool(found) and found != known[0] for found in counts]
    if any(other) and any(said.is_gathered for said in heard):
        raise agreed(
            f"{ranks_that(other)} counted other items than the first rank, with gather=True.",
            why=f"the loss is over the samples of all ranks, and is the same one on each: it "
            f"counts {next(found for found, flag in zip(counts, other, strict=True) if flag)} "
            f"there and {known[0]} on the first. The window was thrown away.",
            fix="return (loss, n) with what is counted over all ranks, or the loss alone: then it "
            "is one item per row of the representations.",
            more="ranks",
        )


def ranks_that(flags: Sequence[bool]) -> str:
    """Name the ranks for which something holds.

    >>> ranks_that([False, True, False, True]), ranks_that([True, False])
    ('ranks 1 and 3', 'rank 0')
    """
    numbers = [str(rank) for rank, flag in enumerate(flags) if flag]
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    shown = numbers if len(numbers) <= 8 else [*numbers[:8], f"{len(numbers) - 8} more"]
    return f"ranks {', '.join(shown[:-1])} and {shown[-1]}"
