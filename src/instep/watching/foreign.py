"""Gradients that no optimizer uses: how many, of what, and whether anybody clears them."""

from __future__ import annotations

import weakref
from itertools import takewhile
from typing import TYPE_CHECKING

from instep.watching.later import Later, sliced

if TYPE_CHECKING:
    from instep.trace import Place
    from instep.watching.book import Book, Held, Touched
    from instep.watching.gauges import Gauges

_SURE = 3
"""Updates after which it is told: an optimizer may come late."""
_SLICE = 1024


class _Part:
    """The parameters of one model that no optimizer holds, since they were first seen."""

    def __init__(self, parameters: list[Held], place: Place | None) -> None:
        self.place = place
        self.count = len(parameters)
        self.size = 0
        self.name = _common([held.label for held in parameters])
        self.updates = 0
        self.backwards = 0
        largest = parameters[0]
        for held in parameters:
            parameter = held.parameter
            if parameter is not None:
                self.size += parameter.numel() * parameter.element_size()
                if largest.parameter is None or parameter.numel() > largest.parameter.numel():
                    largest = held
        self.sample = largest
        parameter = largest.parameter
        self.before = None if parameter is None else sliced(parameter, _SLICE).clone()
        grad = None if parameter is None else parameter.grad
        self._grad = None if grad is None else weakref.ref(grad)
        self._version = -1 if grad is None else grad._version  # noqa: SLF001
        self.changed: Later | None = None

    def grows(self) -> bool:
        """Say whether nothing but backwards has changed the gradient since then."""
        parameter = self.sample.parameter
        grad = None if parameter is None else parameter.grad
        if grad is None or self._grad is None or self._grad() is not grad:
            return False
        return int(grad._version) == self._version + self.backwards  # noqa: SLF001


class Foreign:
    """Follows parameters that get gradients although no optimizer holds them."""

    def __init__(self, book: Book, gauges: Gauges) -> None:
        self._book = book
        self._gauges = gauges
        self._parts: dict[str, _Part] = {}
        self._by_hand: set[str] = set()  # models whose parameters somebody else changes
        self._latest: Touched | None = None

    def after_backward(self, touched: Touched, place: Place | None) -> None:
        """Take note of what a backward went into."""
        if not touched.foreign:
            return
        for part in self._parts.values():
            part.backwards += 1
        if touched is self._latest:
            return
        self._latest = touched
        found: dict[str, list[Held]] = {}
        for key in touched.keys:
            held = self._book.parameters.get(key)
            if held is not None and held.model is not None and not self._is_owned(held):
                found.setdefault(held.model, []).append(held)
        for model, parameters in found.items():
            known = self._parts.get(model)
            if model not in self._by_hand and (known is None or known.count < len(parameters)):
                self._parts[model] = _Part(parameters, place)

    def after_step(self, *, is_due: bool) -> None:
        """See whether anybody holds or changes them after all; tell what is left."""
        if not self._parts:
            return
        for part in self._parts.values():
            part.updates += 1
        if is_due:
            for model, part in list(self._parts.items()):
                self._look(model, part)
            self._tell()

    def _look(self, model: str, part: _Part) -> None:
        parameter = part.sample.parameter
        if parameter is None or part.before is None or self._is_owned(part.sample):
            del self._parts[model]
        elif part.changed is None and part.updates >= _SURE:
            part.changed = Later((sliced(parameter, _SLICE) != part.before).any())
        elif part.changed is not None and part.changed.is_here and part.changed.numbers[0]:
            del self._parts[model]
            self._by_hand.add(model)

    def _tell(self) -> None:
        sure = [p for p in self._parts.values() if p.changed is not None and p.changed.is_here]
        sure = [part for part in sure if part.changed and not part.changed.numbers[0]]
        if not sure:
            self._gauges.hide("foreign-gradients", None)
            self._gauges.hide("foreign-backwards", None)
            return
        part = max(sure, key=lambda part: part.size)
        noun = "parameter" if part.count == 1 else "parameters"
        subject = f"{part.count} {noun} of `{part.name}`"
        self._gauges.show(
            "foreign-gradients",
            None,
            float(part.size),
            unit="bytes",
            subject=subject,
            place=part.place,
        )
        if part.grows():
            backwards = float(part.backwards)
            self._gauges.show("foreign-backwards", None, backwards, unit="backwards")
        else:
            self._gauges.hide("foreign-backwards", None)

    def _is_owned(self, held: Held) -> bool:
        return any(True for _ in self._book.owners(held))


def _common(names: list[str]) -> str:
    """Return what parameters are part of, by their names.

    >>> _common(["model.head.weight", "model.head.bias"]), _common(["model.a.w", "model.ab.w"])
    ('model.head', 'model')
    """
    paths = zip(*(name.split(".")[:-1] for name in names), strict=False)
    shared = takewhile(lambda parts: len(set(parts)) == 1, paths)
    return ".".join(parts[0] for parts in shared) or names[0]
