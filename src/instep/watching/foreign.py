"""Gradients that no optimizer uses: how many, of what, and whether anybody clears them."""

from __future__ import annotations

import weakref
from itertools import takewhile
from typing import TYPE_CHECKING

from instep.rules.reading import is_part
from instep.watching.later import Later, sliced

if TYPE_CHECKING:
    from instep.trace import Place
    from instep.watching.book import Book
    from instep.watching.entries import Held, Touched
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
        # Not every backward need reach it; a clear would be one change more.
        return int(grad._version) <= self._version + self.backwards  # noqa: SLF001


class Foreign:
    """Follows parameters that get gradients although no optimizer holds them."""

    def __init__(self, book: Book, gauges: Gauges) -> None:
        self._book = book
        self._gauges = gauges
        self._parts: dict[str, _Part] = {}
        self._by_hand: set[str] = set()  # models whose parameters somebody else changes
        self._latest: Touched | None = None
        self._reached: tuple[str, ...] = ()  # models of which the latest backward reached any

    def after_backward(self, touched: Touched, place: Place | None) -> None:
        """Take note of what a backward went into."""
        if not touched.foreign:
            return
        if touched is not self._latest:
            self._latest = touched
            self._meet(touched, place)
            return
        for model in self._reached:
            part = self._parts.get(model)
            if part is not None:
                part.backwards += 1

    def _meet(self, touched: Touched, place: Place | None) -> None:
        """Take note of a backward that did not go where the latest one went."""
        found: dict[str, list[Held]] = {}
        for key in touched.keys:
            held = self._book.parameters.get(key)
            if held is not None and held.model is not None and not self._is_owned(held):
                found.setdefault(held.model, []).append(held)
        for model, parameters in found.items():
            known = self._parts.get(model)
            if known is not None and known.count >= len(parameters):
                known.backwards += 1
            elif model not in self._by_hand:
                self._parts[model] = _Part(parameters, place)
        self._reached = tuple(found)

    def after_step(self, *, is_due: bool) -> None:
        """See whether anybody holds or changes them after all; tell what is left."""
        if not self._parts:
            return
        for part in self._parts.values():
            part.updates += 1
        if is_due:
            for model, part in list(self._parts.items()):
                self._look(model, part)
                self._tell(model, part)

    def _look(self, model: str, part: _Part) -> None:
        parameter = part.sample.parameter
        if parameter is None or part.before is None or self._is_owned(part.sample):
            del self._parts[model]
        elif part.changed is None and part.updates >= _SURE:
            part.changed = Later((sliced(parameter, _SLICE) != part.before).any())
        elif part.changed is not None and part.changed.is_here and part.changed.numbers[0]:
            del self._parts[model]
            self._by_hand.add(model)

    def _tell(self, model: str, part: _Part) -> None:
        is_sure = model in self._parts and part.changed is not None and part.changed.is_here
        backwards = part.backwards if is_sure and part.grows() else 0
        evaluated = self._evaluated(model, part) if is_sure else 0
        noun = "parameter" if part.count == 1 else "parameters"
        for what, value, unit in (
            ("gradients", part.size if is_sure else 0, "bytes"),
            ("backwards", backwards, "backwards"),
            ("evaluated", evaluated, "modules"),
        ):
            if not value:
                self._gauges.hide(f"foreign-{what}", None, model)
                continue
            self._gauges.show(
                f"foreign-{what}",
                None,
                float(value),
                unit=unit,
                subject=f"{part.count} {noun} of `{part.name}`",
                place=part.place,
                model=model,
            )

    def _evaluated(self, model: str, part: _Part) -> int:
        """Return how many modules a part has, if all of them are in eval mode; else 0."""
        weak = self._book.models.get(model)
        found = None if weak is None else weak()
        if found is None:
            return 0
        modules = list(found.modules())
        if part.count < sum(1 for _ in found.parameters()):  # the others are somebody's
            path = part.name.removeprefix(model).removeprefix(".")
            below = [module for name, module in found.named_modules() if is_part(name, path)]
            modules = below or modules
        return 0 if any(module.training for module in modules) else len(modules)

    def _is_owned(self, held: Held) -> bool:
        """Say whether an optimizer has it, or one that is gone has trained it."""
        return held.is_trained or any(True for _ in self._book.owners(held))


def _common(names: list[str]) -> str:
    """Return what parameters are part of, by their names.

    >>> _common(["model.head.weight", "model.head.bias"]), _common(["model.a.w", "model.ab.w"])
    ('model.head', 'model')
    """
    paths = zip(*(name.split(".")[:-1] for name in names), strict=False)
    shared = takewhile(lambda parts: len(set(parts)) == 1, paths)
    return ".".join(parts[0] for parts in shared) or names[0]
