"""The sizes that were found, by the shape of what they were found for."""

from __future__ import annotations

import math
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

from instep.splits.fit import Fit, Line

if TYPE_CHECKING:
    from instep.splits.cut import Shape

    Key = tuple[str, tuple[Shape, ...]]

# More shapes than that are lengths that are never the same; the oldest are forgotten.
MOST = 256


class Sizes:
    """What one stepper knows about how much fits."""

    def __init__(self) -> None:
        self._known: dict[Key, Fit] = {}

    def find(self, key: Key) -> Fit | None:
        """Return what is known about batches of this shape.

        Where nothing is, a shape that is at least as large in every dimension will do, up to twice
        as large: what fits of it, fits of the smaller one. So a corpus of many lengths is not
        measured at each of them.
        """
        exact = self._known.get(key)
        if exact is not None:
            return exact
        larger = [fit for other, fit in self._known.items() if _covers(other, key)]
        return max(larger, key=lambda fit: fit.size, default=None)

    def keep(self, key: Key, fit: Fit) -> None:
        """Remember a size, as the newest."""
        self._known.pop(key, None)
        self._known[key] = fit
        while len(self._known) > MOST:
            del self._known[next(iter(self._known))]

    def state_dict(self) -> list[Any]:
        """Return plain data, which `torch.load(weights_only=True)` reads."""
        return [
            (name, [(dtype, list(shape)) for dtype, shape in shapes], astuple(fit))
            for (name, shapes), fit in self._known.items()
        ]

    def load_state_dict(self, state: list[Any]) -> None:
        """Take over what was known."""
        self._known = {}
        for name, shapes, (size, line, *rest) in state:
            key = (name, tuple((dtype, tuple(shape)) for dtype, shape in shapes))
            self._known[key] = Fit(size, None if line is None else Line(*line), *rest)


def _covers(large: Key, small: Key) -> bool:
    if large[0] != small[0] or len(large[1]) != len(small[1]):
        return False
    if _elements(large) > 2 * _elements(small):
        return False
    return all(
        one == other and len(a) == len(b) and all(x >= y for x, y in zip(a, b, strict=True))
        for (one, a), (other, b) in zip(large[1], small[1], strict=True)
    )


def _elements(key: Key) -> int:
    return sum(math.prod(shape) for _, shape in key[1])
