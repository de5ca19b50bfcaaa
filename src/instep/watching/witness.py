"""One parameter of each optimizer, whose gradient tells what was done to it by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from instep.watching.book import Touched

_NOTHING = (0, 0)


class _Witness:
    __slots__ = ("holds", "seen", "weak")

    def __init__(self, weak: Any) -> None:
        self.weak = weak
        self.holds = False  # a gradient is in it, as far as events tell
        self.seen = _NOTHING

    def now(self) -> tuple[int, int]:
        """Return which gradient there is, and how often it was changed."""
        parameter = self.weak()
        grad = None if parameter is None else parameter.grad
        return _NOTHING if grad is None else (id(grad), grad._version)  # noqa: SLF001


class Witnesses:
    """Compares the gradients of witnesses with what events have told of them.

    PyTorch counts every change of a tensor in place. A number that has moved without an event was
    moved by hand; a gradient that is gone was dropped by hand, and another one was put there.
    """

    def __init__(self) -> None:
        self._all: dict[str, _Witness] = {}

    def meet(self, name: str, weak: Any) -> None:
        """Take a parameter of an optimizer that is new here: what is in it, nobody has told."""
        known = self._all.get(name)
        if known is None or known.weak() is None:
            self._all[name] = _Witness(weak)

    def keep(self, names: Iterable[str]) -> None:
        """Forget all others: their optimizers are gone."""
        self._all = {name: self._all[name] for name in names if name in self._all}

    def added(self, touched: Touched) -> None:
        """Take note of a backward."""
        for name, weak in zip(touched.optimizers, touched.witnesses, strict=True):
            witness = self._all.get(name)
            if witness is None or not witness.holds:
                # Where nothing is held yet, one that the losses do reach is the better witness.
                witness = self._all[name] = _Witness(weak)
            witness.seen = witness.now()
            witness.holds = witness.seen is not _NOTHING

    def touched(self, names: Iterable[str]) -> None:
        """Take note of a change that was told."""
        for name in names:
            witness = self._all.get(name)
            if witness is not None:
                witness.seen = witness.now()

    def cleared(self, name: str) -> None:
        """Take note of a clear that was told."""
        witness = self._all.get(name)
        if witness is not None:
            witness.holds = False
            self.touched((name,))

    def changes(self) -> Iterator[tuple[str, str]]:
        """Give what nobody has told: the optimizer, and "none", "zeros" or "edited"."""
        for name, witness in self._all.items():
            now = witness.now()
            if now == witness.seen:
                continue
            held, witness.holds = witness.holds, now is not _NOTHING
            witness.seen = now
            if now is _NOTHING:
                if held:
                    yield name, "none"
                continue
            grad = witness.weak().grad
            if grad.device.type == "cpu" and not grad.is_sparse and not grad.any():
                witness.holds = False
                yield name, "zeros"
            else:
                yield name, "edited"
