"""Captured windows: a micro-step is recorded once per shape as a CUDA graph, and then replayed.

A replay is one launch for forward, backward and the sums into `.grad`, with dropout drawing anew.
`torch.compile(mode="reduce-overhead")` cannot accumulate this way: its graphs overwrite what was
not yet added. The first pieces of a shape run as usual, which also warms up what is lazily made;
then one is recorded. What cannot be recorded runs as usual for good, and a warning says why once.
"""

from __future__ import annotations

import contextlib
import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor

from instep.engine.declare import LOSS
from instep.engine.flat_buffers import FlatBuffers
from instep.engine.function import read_result
from instep.engine.identities import name_of
from instep.engine.recordings import Recording, Series
from instep.engine.sources import RowsOf, source_of
from instep.engine.surroundings import Surroundings
from instep.engine.tape import (
    LONGEST,
    Tape,
    Unrecordable,
    Work,
    recover,
    uncached,
    without_collection,
)
from instep.errors import four_lines, warn
from instep.fast.deferral import Stash, Survey, steps_for
from instep.fast.operators import Firsts, keeping

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from torch import nn

    from instep.engine.lane import Lane
    from instep.engine.sources import Source
    from instep.engine.window import Window
    from instep.splits.plan import Plan

WARM_UP = 3
"""Pieces of a shape that run as usual before one is recorded."""
SHAPES = 32
"""Kinds of pieces that are recorded; further ones run as usual. Patches of a volume are of 27:
inside, and at every border, edge and corner."""
FUNCTIONS = 8
"""Functions that are: one that closes over something new is another one."""

MOST_WARM = 64
"""Kinds of pieces that have run once or twice, and may come again."""

UNRECORDABLE = "this loss function cannot be recorded."
IN_ORDER = "micro-steps run one after the other."
MANY = "no further kinds of micro-batches are recorded."
FIXES = {
    UNRECORDABLE: "leave out what reads the device (.item(), int(tensor), if tensor, prints), or "
    "capture=True.",
    IN_ORDER: "pass capture=True, or leave out what they share.",
    MANY: "pass what changes from step to step as a part of the batch; pad batches to fewer "
    "lengths.",
}


@dataclass
class _Warm:
    """A kind of micro-batch that runs as usual until it is recorded."""

    inside: list[object]
    """What its function is known by."""
    count: int = 0
    survey: Survey = field(default_factory=Survey)
    written: list[str] = field(default_factory=list)
    """What a micro-step changes besides gradients."""


class Captures:
    """The recordings of one stepper's function style."""

    def __init__(self, models: Sequence[nn.Module] = (), width: int = 1) -> None:
        self._models = models
        self._width = width
        self._tape = Tape()
        self.aside = self._tape.aside
        self._known: dict[Hashable, Series | None] = {}
        """What was recorded; None for what cannot be."""
        self._functions: set[Hashable] = set()
        self._warm: dict[Hashable, _Warm] = {}
        # Identities are of living objects only.
        self._held: list[object] = []
        self._begun: set[Series] = set()
        self._ready: frozenset[int] | None = None
        """What the last replay has reached, with nothing else since; backwards weigh `_unit`."""
        self._unit = 0.0
        self._told: set[str] = set()

    @contextlib.contextmanager
    def sparing(self, lane: Lane, plan: Plan, loss_fn: Callable[[Any], Any]) -> Iterator[None]:
        """Open a window for a plan inside: zeros that its first replay writes over are spared."""
        buffers = lane.buffers
        if not isinstance(buffers, FlatBuffers):
            yield
            return
        source = source_of(plan, self._identity(loss_fn, lane)[0])
        if isinstance(source, RowsOf) and len(plan) <= LONGEST:
            keys = {source.key(given) for given in source}
            known = self._known.get(keys.pop()) if len(keys) == 1 else None
            if isinstance(known, Series):
                buffers.spare(known.writes(len(plan)))
        try:
            yield
        finally:
            buffers.spare(frozenset())

    def run(
        self,
        window: Window,
        lane: Lane,
        plan: Plan,
        loss_fn: Callable[[Any], Any],
        *,
        name: str | None,
    ) -> None:
        """Run every piece of a plan through an open window, replaying what is recorded."""
        self._tape.used = 0
        self._ready = None
        self._begun = set()
        pieces = len(plan)
        # Not before the window is open: it may have laid out the gradients anew.
        identity, inside = self._identity(loss_fn, lane)
        source = source_of(plan, identity)
        line = Line(source)
        for given in line if self._width > 1 else source:
            if self._ready is None:
                lane.choose_reference(LOSS, source.items(given))
            key = source.key(given)
            known = self._known.get(key)
            is_new = known is None and key is not None and self._has_room(key, identity)
            if is_new and (warm := self._warm.get(key)) and warm.count >= WARM_UP:
                known = self._known[key] = self._series(
                    key, source, given, lane, loss_fn, pieces=pieces
                )
                self._functions.add(identity)
                is_new = False
            if known is not None and self._tape.used + known.most <= LONGEST:
                if known not in self._begun:
                    self._begun.add(known)
                    known.begin(source.batch, is_first=bool(_spared(lane)))
                handed = [source.handed(given)]
                if known.most > 1:
                    beside = line.take_alike(key, known.width - 1)
                    handed.extend(source.handed(one) for one in beside)
                self._replay(known.next(len(handed)), handed, window, lane)
                continue
            self._ready = None
            piece = source.piece(given)
            with self._warming_up(key, loss_fn, inside) if is_new else contextlib.nullcontext():
                with piece.around():
                    result = loss_fn(piece.value)
                loss, items = read_result(result, piece.items, piece.refused)
                window.backward(loss, items=items, optimizer=name)
        for series in self._begun:
            series.finish()
        lane.buffers.seal()

    def _has_room(self, key: Hashable, identity: Hashable) -> bool:
        """Whether one more may be recorded; what runs as usual because of that is said once."""
        if key in self._known:
            return False
        functions = len(self._functions | {identity})
        if len(self._known) < SHAPES and functions <= FUNCTIONS:
            return True
        self._tell(
            MANY,
            f"{len(self._known)} are, of {len(self._functions)} functions. Each takes memory, and "
            "a loss function that closes over something new in every step is another one each "
            "time. What is not recorded runs as usual.",
        )
        return False

    @contextlib.contextmanager
    def _warming_up(
        self, key: Hashable, loss_fn: Callable[[Any], Any], inside: list[object]
    ) -> Iterator[None]:
        """Run a piece as it will be recorded, and look at what could be deferred then."""
        warm = self._warm.setdefault(key, _Warm(inside))
        warm.survey = Survey()
        is_last = warm.count == WARM_UP - 1 and self._width > 1
        around = Surroundings(self._models, loss_fn) if is_last else None
        with uncached(), keeping(warm.survey):
            yield
        warm.count += 1
        if around is not None:
            warm.written = around.changed()
        if len(self._warm) > MOST_WARM:
            del self._warm[next(iter(self._warm))]

    def _identity(
        self, function: Callable[[Any], Any], lane: Lane
    ) -> tuple[Hashable, list[object]]:
        """Return what a recording is of: the function, and how the models stand to it.

        And what must live as long as that is known by the identity of objects.
        """
        buffers = lane.buffers
        layout = buffers.layout if isinstance(buffers, FlatBuffers) else 0
        trained = tuple(p.requires_grad for p in buffers.members)
        modes = tuple(m.training for model in self._models for m in model.modules())
        inside: list[object] = []
        return (name_of(function, inside), layout, trained, modes), inside

    def _series(
        self,
        key: Hashable,
        source: Source,
        given: Any,
        lane: Lane,
        loss_fn: Callable[[Any], Any],
        *,
        pieces: int,
    ) -> Series | None:
        """Record what has been warmed up."""
        warm = self._warm.pop(key)
        self._held.extend(warm.inside)
        stash = Stash(steps_for(warm.survey.calls, pieces))
        width = width_for(self._width, stash.steps, pieces)
        if width > 1 and not self._may_be_abreast(warm, lane):
            width = 1
        with without_collection():
            return self._recorded(Work(source, given, lane, loss_fn, stash), width)

    def _recorded(self, work: Work, width: int) -> Series | None:
        """Record what fits: singles for any number of pieces, and wide ones if they are wanted."""

        def record(width: int) -> list[Recording]:
            rounds = (range(at, at + width) for at in range(0, work.stash.steps, width))
            made = [self._tape.record(work, places, Firsts()) for places in rounds]
            for one in made:
                if one.reached == made[0].reached:
                    one.reached = made[0].reached
            return made

        try:
            singles = record(1)
        except (RuntimeError, Unrecordable) as error:
            recover(work.device)
            self._tell(UNRECORDABLE, f"{_first_line(error)} It runs as usual.")
            return None
        wide: list[Recording] = []
        first: Recording | None = None
        try:
            wide = record(width) if width > 1 else []
            first = self._first_of(work, wide or singles)
        except RuntimeError as error:
            recover(work.device)
            self._tell(IN_ORDER, _first_line(error))
        return Series(singles, work.stash, wide, first)

    def _first_of(self, work: Work, made: list[Recording]) -> Recording | None:
        """Record once more what multiplies first in a window, writing where it would only add."""
        before = frozenset().union(*(one.touches for one in made[:-1]))
        last = made[-1]
        start = (len(made) - 1) * last.width
        firsts = Firsts(writes=True, without=before)
        first = self._tape.record(work, range(start, start + last.width), firsts)
        if first.reached == last.reached:
            first.reached = last.reached
        return first if first.writes else None

    def _may_be_abreast(self, warm: _Warm, lane: Lane) -> bool:
        """Whether micro-steps may run side by side: nothing is written that another one writes."""
        if warm.written:
            self._tell(IN_ORDER, f"each of them writes to `{warm.written[0]}`.")
            return False
        if not isinstance(lane.buffers, FlatBuffers) or not lane.buffers.can_part:
            why = "a hook looks at gradients as they are added up, or they are summed in a "
            self._tell(IN_ORDER, f"{why}wider type than autograd makes them.")
            return False
        return True

    def _replay(
        self, recording: Recording, given: Sequence[Any], window: Window, lane: Lane
    ) -> None:
        if not self._tape.used:
            self._tape.rewind()
        if recording.reached is not self._ready:
            # Nothing of the user's runs between two replays: what is looked at here stays so.
            lane.buffers.require_untouched()
            if isinstance(lane.buffers, FlatBuffers):
                lane.buffers.reach(recording.reached)
            self._unit = lane.unit(LOSS)
            self._ready = recording.reached
        recording.run(given, self._unit)
        if recording.writes and isinstance(lane.buffers, FlatBuffers):
            lane.buffers.spared = frozenset()
        for items in recording.items:
            loss, count = self._tape.next_cell()
            window.replayed(lane, loss, count if isinstance(items, Tensor) else items)

    def _tell(self, what: str, why: str) -> None:
        if what not in self._told:
            self._told.add(what)
            text = four_lines(
                f"capture: {what}", why=f"{why} (Said once.)", fix=FIXES[what], more="fast"
            )
            warn(text)


class Line:
    """The pieces of a source, with a look at those that come."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._coming = iter(source)
        self._seen: deque[Any] = deque()

    def __iter__(self) -> Iterator[Any]:
        while self._seen or self._look():
            yield self._seen.popleft()

    def take_alike(self, key: Hashable, count: int) -> list[Any]:
        """Take so many more pieces with this key, or none of them."""
        while len(self._seen) < count:
            if not self._look():
                return []
        alike = [one for _, one in zip(range(count), self._seen, strict=False)]
        if any(self._source.key(one) != key for one in alike):
            return []
        for _ in alike:
            self._seen.popleft()
        return alike

    def _look(self) -> bool:
        for one in self._coming:
            self._seen.append(one)
            return True
        return False


def _spared(lane: Lane) -> frozenset[int]:
    return lane.buffers.spared if isinstance(lane.buffers, FlatBuffers) else frozenset()


def width_for(most: int, steps: int, pieces: int) -> int:
    """Return how many micro-steps run side by side, of at most so many.

    Those of a round (`steps`) share products, and a recording is part of a round. Else a window is
    cut into recordings that are equally wide, as far as that goes.

    >>> width_for(8, steps=1, pieces=8), width_for(8, steps=1, pieces=10)
    (8, 5)
    >>> width_for(8, steps=4, pieces=8), width_for(3, steps=4, pieces=8)
    (4, 2)
    """
    if steps > 1:
        return max(width for width in range(1, min(most, steps) + 1) if steps % width == 0)
    most = max(min(most, pieces), 1)
    return max(pieces // math.ceil(pieces / most), 1)


def _first_line(error: BaseException) -> str:
    while isinstance(error.__context__, Exception):
        error = error.__context__
    return str(error).splitlines()[0]
