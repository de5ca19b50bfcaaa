"""Loaders: the batches they gave, and when their epochs end."""

from __future__ import annotations

import inspect
import opcode
import weakref
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from instep.trace import Drawn, EpochEnd

if TYPE_CHECKING:
    from types import FrameType

    from instep.trace import Fact, Place
    from instep.watching.recorder import Recorder

_YIELD = opcode.opmap["YIELD_VALUE"]


class Feeds:
    """What is known about the loaders of a job."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._drawn: Counter[str] = Counter()
        self._places: dict[Place | None, tuple[weakref.ref[object], str]] = {}
        self.ending: list[tuple[FrameType, str, Place | None]] = []
        """Epochs that are over but for batches that were asked for ahead."""

    def drawn(self, loader: object, batch: object) -> None:
        """Tell of a batch that a loader gave."""
        recorder = self._recorder
        place = recorder.place()
        id_ = self._name(loader, place)
        self._drawn[id_] += 1
        recorder.models.batch(id_, batch)
        recorder.add(("drawn", id_, place), lambda: Drawn(id_, place=place))

    def ended(self, loader: object, asked: FrameType | None) -> None:
        """Tell that a loader has no more to give, and by whom it was asked for more.

        A generator that asks may still have a batch to hand out: then the epoch ends with it.
        """
        place = self._recorder.place()
        id_ = self._name(loader, place)
        if asked is not None and asked.f_code.co_flags & inspect.CO_GENERATOR:
            self.ending.append((asked, id_, place))
        else:
            self._end(id_, place)

    def settle(self, *, last: bool = False) -> None:
        """Tell the epochs whose last batch was handed out; `last`: the job is over."""
        ending, self.ending = self.ending, []
        for frame, id_, place in ending:
            # It waits in a yield for as long as somebody has a batch of it in hand.
            if not last and frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] == _YIELD:
                self.ending.append((frame, id_, place))
            else:
                self._end(id_, place)

    def forget(self, id_: str) -> None:
        """Drop what is known of a loader that has died."""
        self._drawn.pop(id_, None)

    def _end(self, id_: str, place: Place | None) -> None:
        batches = self._recorder.few("batches", place, self._drawn.pop(id_, 0))
        self._recorder.add(
            ("epoch-end", id_, place, batches),
            lambda: EpochEnd(id_, batches=batches, place=place),
        )

    def _name(self, loader: object, place: Place | None) -> str:
        book = self._recorder.book
        if book.met(loader) is not None:
            return book.name(loader, "loader")
        earlier = self._places.get(place)
        if earlier is not None and earlier[0]() is None:  # a new one for each epoch is one of them
            id_ = book.rename(loader, earlier[1])
        else:
            id_ = book.name(loader, "loader")
        self._places[place] = (weakref.ref(loader), id_)
        length = getattr(loader, "__len__", None)
        facts: dict[str, Fact] = {"type": type(loader).__name__}
        with suppress(TypeError):  # an iterable dataset has none
            facts["length"] = int(length()) if length is not None else None
        self._recorder.fact(id_, "loader", place, **facts)
        return id_
