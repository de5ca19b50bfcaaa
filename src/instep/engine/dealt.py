"""Loaders that are dealt out to ranks tell the loop that draws from them, whatever is between.

A loop is handed a loader, or something around it: `tqdm(loader)`, `zip(a, b)`, a generator. What it
draws from in the end is not to be found from outside. So each pass over what
`instep.distributed.shard` made tells the loop in whose draw its first batch is drawn. A pass that
nobody draws in a loop (a validation, a look at one batch) tells nobody.
"""

from __future__ import annotations

import threading
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from weakref import ReferenceType, ref

import torch

from instep.engine import rng
from instep.errors import SetupError, StateError, WindowError, four_lines, warn
from instep.trace.place import here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType

    from torch import Tensor

    from instep.engine.passed import Passed

PLACES = ("sampler", "batch_sampler", "dataset")
"""Where a DataLoader may have what deals out its samples."""
PASSES = 64
"""Loaders inside of one loop that can be come back to; one that goes round for ever has more."""


LOADERS = 16
"""Loaders that a stepper remembers, the last ones that began."""

_made: Counter[str] = Counter()


def line_of_here() -> str:
    """Return the user's line that is running, the same on ranks that run one program."""
    place = here()
    return "" if place is None else f"{PurePath(place.path).name}:{place.line}"


def serial_of(line: str) -> int:
    """Return a number of the line that makes a loader, and of how often it has.

    Ranks that run one program have the same one for the same loader, also where one of them makes
    others besides.
    """
    _made[line] += 1
    return zlib.crc32(f"{line} {_made[line]}".encode()) % 2**16 + 1


class _Ear(threading.local):
    """Who draws in this thread."""

    listener: Listener | None = None


_ear = _Ear()


class Start:
    """The generators that a pass begins with: its order is drawn from them."""

    def __init__(
        self, sources: dict[str, torch.Generator], *, is_told: bool, serial: int = 0
    ) -> None:
        self.sources, self.is_told, self.serial = sources, is_told, serial
        self.states = self.now()
        self.is_known = False
        """Whether the loop knows of it, because it began inside."""

    def now(self) -> dict[str, Tensor]:
        """Return the states as they are now."""
        return {name: source.get_state() for name, source in self.sources.items()}


class Known:
    """The loaders that the loops of a stepper have drawn from, each by where it was made.

    One that a saved loop had not begun, or another loop had, goes on in its own order, too.
    """

    NAME = "made"

    def __init__(self) -> None:
        self._sources: dict[int, dict[str, torch.Generator]] = {}
        self._saved: dict[int, dict[str, Tensor]] = {}
        """Of those that did not begin since they were saved."""

    def expect(self, states: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Take what was saved of them; return the rest."""
        mine = [name for name in states if name.startswith(f"{self.NAME} ")]
        for each in mine:
            _, serial, name = each.split(" ", 2)
            self._saved.setdefault(int(serial), {})[name] = states[each]
        return {name: state for name, state in states.items() if name not in mine}

    def begin(self, serial: int, sources: dict[str, torch.Generator]) -> dict[str, Tensor] | None:
        """Note a loader that begins; return how it is to: as it is, but for what was saved of it.

        None: nothing is known of it.
        """
        if serial not in self._sources and serial not in self._saved:
            saved = None
        else:
            # What two loaders draw from goes on when the first of them has begun.
            begun = {id(one) for each in self._sources.values() for one in each.values()}
            states = self._saved.pop(serial, {})
            saved = {
                n: s for n, s in states.items() if n in sources and id(sources[n]) not in begun
            }
        if serial:
            # The last ones stay: a program may make new ones in every epoch.
            self._sources.pop(serial, None)
            self._sources = dict([*self._sources.items(), (serial, sources)][-LOADERS:])
        return saved

    def states(self, besides: Iterable[int] = ()) -> dict[str, Tensor]:
        """Return the states of all as they are now, but for some."""
        now = {
            serial: {name: source.get_state() for name, source in sources.items()}
            for serial, sources in self._sources.items()
        }
        return {
            f"{self.NAME} {serial} {name}": state
            for serial, states in (now | self._saved).items()
            if serial not in besides
            for name, state in states.items()
        }


class Inside:
    """The passes inside of a loop, in the order in which they begin, and how they are to begin.

    A loop that goes on puts back what the order of a loader is drawn from. It can do so where the
    loader begins inside of the loop; of one that began before, it can only look.
    """

    NAME = "inside"

    def __init__(self, known: Known) -> None:
        self.is_direct = False
        """Whether the loop was handed the loader itself, and sees to it."""
        self._known = known
        self._starts: list[Start] = []
        self._saved: dict[str, Tensor] = {}
        self._is_resumed = False

    def expect(self, states: Mapping[str, Tensor], *, is_resumed: bool) -> dict[str, Tensor]:
        """Take what was saved of loaders inside; return the rest.

        is_resumed: whether the loop goes on in the middle of their epoch.
        """
        self._is_resumed = is_resumed
        states = self._known.expect(states)
        self._saved = {name: s for name, s in states.items() if name.startswith(self.NAME)}
        return {name: state for name, state in states.items() if name not in self._saved}

    def begin(self, start: Start) -> None:
        """Let a pass that begins now begin as it did."""
        if self.is_direct:
            start.is_known = True
            return
        saved = self._saved_of(start)
        for name, source in start.sources.items():
            if name in saved and not start.is_told:
                source.set_state(saved[name])
                start.states[name] = saved[name]
        self._take(start, saved)

    def add(self, begun: Pass) -> None:
        """Take a pass that is drawn from, and may have begun before the loop."""
        if begun.start is not None and not begun.start.is_known and not self.is_direct:
            self._take(begun.start, self._saved_of(begun.start))

    def _saved_of(self, start: Start) -> dict[str, Tensor]:
        """Return what was saved of the pass that is the next one."""
        place = len(self._starts)
        names = {name: self._name(place, name) for name in start.sources}
        here = {name: self._saved[full] for name, full in names.items() if full in self._saved}
        own = self._known.begin(start.serial, start.sources)
        # A new epoch may take its loaders in another order. One that is not known by where it was
        # made is the one in its place: a program may have other lines when it goes on.
        return here if own is None or (here and self._is_resumed) else own

    def _take(self, start: Start, saved: Mapping[str, Tensor]) -> None:
        start.is_known = True
        for name, state in start.states.items():
            is_other = name in saved and not torch.equal(saved[name], state)
            if is_other and self._is_resumed:
                raise StateError(_OTHER, **_WHY)
            if is_other and not start.is_told:
                # A whole epoch: nothing is lost in it.
                warn(four_lines(_OTHER, **_WHY))
        self._starts.append(start)

    def states_at_start(self) -> dict[str, Tensor]:
        """Return the states that each pass began with; those of loaders to come as they are now."""
        begun = {
            self._name(place, name): state
            for place, start in enumerate(self._starts[:PASSES])
            for name, state in start.states.items()
        }
        return begun | self._known.states(besides={start.serial for start in self._starts})

    def states_now(self) -> dict[str, Tensor]:
        """Return the states of all as they are now, each once: one may have begun several times."""
        found: dict[int, tuple[str, torch.Generator]] = {}
        for place, start in enumerate(self._starts[:PASSES]):
            for name, source in start.sources.items():
                found.setdefault(id(source), (self._name(place, name), source))
        return {name: each.get_state() for name, each in found.values()} | self._known.states()

    def _name(self, place: int, name: str) -> str:
        return f"{self.NAME} {place} {name}"


_OTHER = "a loader inside of another began in another order than the one that was saved."
_WHY = {
    "why": "the loop goes on in the order that it had. It is put back when a loader begins inside "
    "of the loop; zip(), enumerate() and iter() begin it before, and set_epoch() decides itself.",
    "fix": "pass the loader itself, or a class or generator function around it, which begins when "
    "it is drawn from; or tell it the epoch that was saved: loader.sampler.set_epoch(epoch) with "
    "`for epoch in stepper.epochs(...)`.",
    "more": "resume",
}


class Listener:
    """A loop's ear: entered while it draws, it hears of every pass that begins to be drawn from."""

    def __init__(
        self,
        world: int,
        follow: Callable[[Told], None] | None = None,
        known: Known | None = None,
    ) -> None:
        """world: how many ranks the loop is one of. follow: whom to tell. known: loaders before."""
        self._world = world
        self._follow = follow
        self._outer: list[Listener | None] = []
        self.is_open = True
        """Whether its loop goes on."""
        self.known = known or Known()
        self.inside = Inside(self.known)
        """The loaders inside of the one that the loop was handed."""

    def __enter__(self) -> None:
        self._outer.append(_ear.listener)
        _ear.listener = self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        _ear.listener = self._outer.pop()

    def hear(self, begun: Pass) -> None:
        """Hear of a pass whose first batch is about to be drawn."""
        refuse_a_part(begun.dealer, self._world)
        self.inside.add(begun)
        if begun.told.passed is not None:
            begun.told.passed.held_by = ref(self)
        if self._follow is not None:
            self._follow(begun.told)


@dataclass(eq=False)
class Told:
    """What a pass tells of itself; who keeps it does not keep the workers of a loader."""

    serial: int
    """The number of its loader, by where it was made; 0: the loop has no other."""
    dealt_to: int
    """How many ranks take turns."""
    passed: Passed | None
    epoch: int
    """The epoch that `passed` looks at, of the stream."""
    deal: tuple[int, int] | None = None
    """A number of the order of samples, the same on all ranks, and how many are in it; None: it
    has none, or not yet."""


class Pass(Iterator[Any]):
    """One pass over a loader that is dealt out."""

    def __init__(
        self, batches: Iterator[Any], dealer: Any, epoch: int, start: Start | None = None
    ) -> None:
        """epoch: the one that was begun of its stream; 0: it has none, or is not looked at."""
        self.batches = batches
        self.dealer = dealer
        self.start = start
        passed: Passed | None = getattr(dealer, "instep_passed", None)
        self.told = Told(dealer.serial, dealer.instep_dealt_to, passed, epoch)
        self._is_new = True

    def __next__(self) -> Any:
        if self._is_new:
            self._is_new = False
            if _ear.listener is not None:
                _ear.listener.hear(self)
            try:
                return self._drawn()
            finally:
                self.told.deal = getattr(self.dealer, "deal", None)
        return self._drawn()

    def _drawn(self) -> Any:
        try:
            return next(self.batches)
        except StopIteration:
            if self.told.epoch and self.told.passed is not None:
                self._require_whole(self.told.passed)
            raise

    def _require_whole(self, passed: Passed) -> None:
        if passed.epoch == self.told.epoch and passed.was_cut(passed.epoch):
            raise WindowError(
                "a loader of a stream ended, and its stream did not.",
                why="it raised an error on the way, and that was lost: a worker's error that "
                "cannot be pickled (of a class inside of a function, say) is printed there and "
                "not sent, and a stream that is a generator has no more after it.",
                fix="look for the error in the output of this process; define its class at the "
                "top of a module.",
                more="ranks",
            ) from None

    def __len__(self) -> int:
        return len(self.batches)  # type: ignore[arg-type]  # as the iterator of a DataLoader has

    def __getattr__(self, name: str) -> Any:
        # Some programs know what the iterator of a DataLoader has.
        if name.startswith("__") or "batches" not in vars(self):
            raise AttributeError(name)
        return getattr(self.batches, name)


def start_of(loader: Any, dealer: Any) -> Start:
    """Note how a pass over a loader begins, with the states that its loop was saved with.

    An order that is that of an epoch, which it was told, is not put back.
    """
    start = Start(rng.generators_of(loader), is_told=dealer.is_told, serial=dealer.serial)
    if _ear.listener is not None:
        _ear.listener.inside.begin(start)
    return start


def is_held(holder: ReferenceType[Listener] | None) -> bool:
    """Whether a loop goes on with a pass, and what begins now is another one besides it."""
    listener = None if holder is None else holder()
    return listener is not None and listener.is_open and _ear.listener is None


def dealer_of(loader: Any) -> Any:
    """Return what deals out the samples of a loader to several ranks, if that can be seen."""
    for place in (loader, *(getattr(loader, name, None) for name in PLACES)):
        number = getattr(place, "instep_dealt_to", 1)
        if isinstance(number, int) and number > 1:
            return place
    return None


def refuse_a_part(loader: Any, world: int) -> None:
    """Raise if a loader was dealt out to several ranks, and only one process takes from it."""
    dealer = dealer_of(loader)
    if world == 1 and dealer is not None:
        raise SetupError(
            f"the loader was dealt out to {dealer.instep_dealt_to} ranks, and this stepper belongs "
            "to one process.",
            why="every process would train a model of its own, with its part of the samples.",
            fix="wrap the model in DistributedDataParallel or fully_shard, or pass group= to "
            "Stepper; for a model of its own on every rank, leave shard() out.",
            more="ranks",
        )
