"""One round of talk: every rank says something and hears all, in one small collective."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import time
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from instep.engine.ranks.farewell import wait_at_exit
from instep.engine.ranks.headers import LEAVING, Kind, Said, ranks_that, unpack
from instep.engine.ranks.rollcall import RollCall
from instep.engine.ranks.torn import Torn
from instep.engine.ranks.wire import (
    LateError,
    begin_all_gather,
    host_of,
    on_host,
    patience,
    settle,
    timeout_of,
)
from instep.errors import WindowError, said_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from instep.engine.ranks.world import Ranks

SLOT = 509
"""Bytes that every rank sends; what is longer follows in a second call, of all ranks. No tensor of
a user's own has as many: if a rank gives up while another is in a collective of its own on the same
group, that fails loudly instead of giving numbers that are none."""
HEAD = 5
"""Of these: four for the length of what is said, one for its kind."""
ROOM = 64
"""Bytes of a last word that are left for where its rank is, and whether it would like to save."""
START = b'{"kind":'
"""What follows then, whatever is said."""
CLOSED = ("onnection closed", "onnection reset", "roken pipe", "remote process exited")
"""What gloo and NCCL say where the process at the other end has ended."""


class Exchange:
    """The talk of one process group."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._rounds = 0
        self._roll = RollCall(ranks)
        self._is_broken = False
        """Whether somebody is missing: the others find out as this rank did, and whom to blame."""
        self._abandoned: tuple[str, str] | None = None
        """What this rank left while the others were in it, and why: it can say nothing any more."""
        self.torn = Torn()
        self._left: list[Any] = []
        self._usual: tuple[Tensor, Tensor, Tensor] | None = None
        self._last: tuple[Tensor, Tensor, Tensor] | None = None
        if ranks.device().type == "cpu":
            self.prepare()
            wait_at_exit()

    def prepare(self) -> None:
        """Have what a round needs, and a last word, before memory is what is talked about."""
        self._usual = self._usual or self._tensors(SLOT)
        self._last = self._last or self._tensors(SLOT)

    def round(
        self, said: Said, what: str, meanwhile: Callable[[], None] | None = None
    ) -> list[Said]:
        """Say something and hear everyone; `what` is waited for, in the words of an error.

        meanwhile: work to do while it travels.
        """
        if self._abandoned is not None:
            raise _out_of_step(*self._abandoned)
        if self.torn.reason is not None:
            if not self.torn.is_told:
                self.leave(self.torn.reason)
            self.torn.refuse()
        self._rounds += 1
        try:
            slots, lengths = self._talk(said, what, meanwhile)
        except Exception:
            raise
        except BaseException as error:
            # An interrupt is raised when the round is over; the others have gone on.
            self.abandon(what, error)
            raise
        # Rounds keep their order: what was said on the way out before has arrived, too.
        self._left.clear()
        found = [_read(slot, length) for slot, length in zip(slots, lengths, strict=True)]
        _require_headers([said is None for said in found], what)
        return [said for said in found if said is not None]

    def _talk(
        self, said: Said, what: str, meanwhile: Callable[[], None] | None
    ) -> tuple[list[bytes], list[int]]:
        """Return what everyone has sent, and how long it is in full."""
        with self.waiting(what):
            packed = said.pack()
            slots = self._gather(_slot(packed, said.kind, SLOT), SLOT, meanwhile)
            # Before a length is believed: whatever it is, so much would be asked for.
            _require_headers([not slot.startswith(START, HEAD) for slot in slots], what)
            lengths = [int.from_bytes(slot[:4], "little") for slot in slots]
            longest = max(lengths)
            # A rank that gave up has said all it has to say, and is not there for a second call.
            if longest > SLOT - HEAD and all(slot[4] not in LEAVING for slot in slots):
                size = longest + HEAD
                slots = self._gather(_slot(packed, said.kind, size), size)
        return slots, lengths

    def abandon(self, what: str, error: BaseException) -> None:
        """Note that this rank leaves what the others are in, and waits for its part.

        It sends nothing from here on: the others would take it for that part.
        """
        if self._abandoned is None:
            reason = said_of(error)
            self.note(reason)
            self._abandoned = what, reason

    def leave(self, reason: str, kind: Kind = Kind.FAILED) -> None:
        """Say that this rank gave up, without waiting for anyone: it may be on its way out."""
        import torch.distributed as dist  # noqa: PLC0415 -- in use already

        if sys.is_finalizing() or not dist.is_initialized() or not self._is_heard:
            return
        self._rounds += 1
        self.torn.is_told = True
        said = last_word(reason, kind)
        packed = said.pack()
        # Where the others are gone already, nobody has to be told.
        with contextlib.suppress(RuntimeError):
            mine, whole, _ = self._last or self._tensors(SLOT)
            self._last = None
            slot = bytearray(_slot(packed, said.kind, SLOT))
            mine.copy_(torch.frombuffer(slot, dtype=torch.uint8))
            work = begin_all_gather(whole, mine, self._ranks.group)
            self._left.append((work, mine, whole))
        # A process that ends now may take its connections down before that has arrived.
        self._roll.leave(self._rounds, said.about)

    def note(self, reason: str) -> None:
        """Leave a reason where the others can read it, and send nothing."""
        if self._is_heard:
            self._roll.leave(self._rounds, reason[:200], is_silent=True)

    @property
    def _is_heard(self) -> bool:
        """Whether the others still wait for a word of this rank."""
        return not self._is_broken and self._abandoned is None

    @contextlib.contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Turn the error of a collective into one that says what was waited for, and for whom.

        A collective on a device is over when the device is done, and not before.
        """
        since = time.monotonic()
        try:
            yield
            # Where the gradients are, also if the headers travel between the hosts.
            settle(self._ranks.home, self._hope(self._ranks.home))
        except RuntimeError as error:
            if isinstance(error, WindowError | torch.OutOfMemoryError):
                raise
            raise self._missing(what, error, time.monotonic() - since) from error

    def _gather(
        self, payload: bytes, size: int, meanwhile: Callable[[], None] | None = None
    ) -> list[bytes]:
        usual = self._usual or self._tensors(SLOT)
        mine, whole, here = usual if size == SLOT else self._tensors(size)
        mine.copy_(torch.frombuffer(bytearray(payload), dtype=torch.uint8))
        work = begin_all_gather(whole, mine, self._ranks.group)
        try:
            if meanwhile is not None:
                meanwhile()
        finally:
            here = on_host(whole, here, work, self._hope(whole.device))
        heard = ctypes.string_at(here.data_ptr(), here.numel())
        return [heard[start : start + size] for start in range(0, len(heard), size)]

    def _hope(self, device: torch.device | None) -> Callable[[], None]:
        """Return what raises where it is in vain to wait for a device any longer.

        A rank that has gone away without sending its part has left a word in the store; and the
        watchdog of NCCL ends this process when the time of the group is over.
        """
        begun = time.monotonic()

        def look() -> None:
            limit = patience(timeout_of(self._ranks.group, device))
            if (waited := time.monotonic() - begun) > limit:
                raise LateError(f"nothing has come for {waited:.0f} s")
            if self._roll.is_silent():
                raise LateError("a rank sends nothing more")

        return look

    def _tensors(self, size: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return what is sent, what all have sent, and that on the host."""
        device = self._ranks.device()
        mine = torch.empty(size, dtype=torch.uint8, device=device)
        whole = torch.empty(self._ranks.world * size, dtype=torch.uint8, device=device)
        return mine, whole, host_of(whole)

    def _missing(self, what: str, error: RuntimeError, waited: float) -> WindowError:
        is_closed = any(words in str(error) for words in CLOSED)
        absent = self._roll.call(self._rounds, waited, is_closed=is_closed)
        late = absent.ranks
        self._is_broken = is_closed or any(late)
        if absent.reasons:
            said = "; ".join(f"rank {rank}: {why}" for rank, why in absent.reasons.items())
            return WindowError(
                f"{ranks_that(late)} gave up, so {what} did not happen on any rank.",
                why=f"{said.rstrip('.')}. All ranks end a window together.",
                fix="mend what failed there; its own output has the whole error.",
                more="ranks",
            )
        who = f"{ranks_that(late)} did not come to {what} in time" if any(late) else ""
        if is_closed:
            named = ranks_that(late) if any(late) else "a rank"
            who = f"{named} {'are' if sum(late) > 1 else 'is'} gone, before {what}"
        if late[self._ranks.rank]:
            who = f"this rank came too late to {what}: the others had stopped waiting for it"
        return WindowError(
            f"{who or f'{what} failed'}.",
            why="all ranks end a window together. A rank that is not there has stopped with an "
            "error of its own (look at its output first), hangs, or runs another loop. "
            f"torch said: {str(error).splitlines()[0] if str(error) else type(error).__name__}",
            fix="mend what stopped it, and start again from the last checkpoint; a rank that is "
            "only slow needs a longer timeout= in init_process_group.",
            more="ranks",
        )


def last_word(reason: str, kind: Kind = Kind.FAILED) -> Said:
    """Return what a rank says that gives up: so long that one message has it.

    >>> last_word("an error").about, len(last_word(chr(233) * 300).about)
    ('an error', 50)
    """
    said = Said(kind, reason[:200])
    while len(said.pack()) > SLOT - HEAD - ROOM:
        said = Said(kind, said.about[: len(said.about) // 2])
    return said


def _out_of_step(what: str, reason: str) -> WindowError:
    return WindowError(
        f"this rank has left {what} alone, and can take part in nothing more with the others.",
        why=f"{reason.rstrip('.')}. The others still wait for its part, and would take whatever "
        "it sends now for that.",
        fix="let what interrupted it end this process: the others are told then, and why. Start "
        "again from the last checkpoint.",
        more="ranks",
    )


def _slot(packed: bytes, kind: Kind, size: int) -> bytes:
    head = len(packed).to_bytes(4, "little") + bytes([kind])
    return (head + packed)[:size].ljust(size, b"\0")


def _read(slot: bytes, length: int) -> Said | None:
    """Return what was said; None if it is no header."""
    try:
        if len(slot) < HEAD + length:
            # Cut off, because somebody failed: that is all that will be looked at.
            return Said(Kind(slot[4]))
        return unpack(slot[HEAD : HEAD + length])
    except (ValueError, TypeError, LookupError):
        return None


def _require_headers(others: Sequence[bool], what: str) -> None:
    """Raise if ranks have sent something else."""
    if any(others):
        raise WindowError(
            f"{ranks_that(others)} sent something else than a header, at {what}.",
            why="collectives of one group are paired in the order in which each rank calls them: "
            "there it was another one, of the program's own or of torch (all_gather, all_reduce, "
            "broadcast), or a part of a save. So the ranks were not in the same place.",
            fix="call the same collectives in the same order on every rank, also where one leaves "
            "a loop, and none while a window is open; or give your own a group of their own: "
            "torch.distributed.new_group().",
            more="ranks",
        )
