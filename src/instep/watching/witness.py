"""One parameter of each optimizer, whose gradient tells what was done to it by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from instep.watching.book import Touched


class _Witness:
    __slots__ = ("fresh", "holds", "version", "weak", "weight")

    def __init__(self, weak: Any) -> None:
        self.weak = weak
        self.holds = False  # a gradient is in it, as far as events tell
        self.version = -1
        self.fresh = False  # it waits for its step: until then the weight must stay as it is
        self.weight = -1


class Witnesses:
    """Compares the gradients of witnesses with what events have told of them.

    PyTorch counts every change of a tensor in place. A number that has moved without an event was
    moved by hand; a gradient that is gone was dropped by hand. A weight that moves between a
    backward and its step is moved by somebody who does more than step, and cannot be followed.
    """

    def __init__(self) -> None:
        self._all: dict[str, _Witness] = {}

    def added(self, touched: Touched) -> None:
        """Take note of a backward."""
        for name, weak in zip(touched.optimizers, touched.witnesses, strict=True):
            witness = self._all.get(name)
            if witness is None or witness.weak() is None:
                witness = self._all[name] = _Witness(weak)
            parameter = witness.weak()
            if parameter is not None and parameter.grad is not None:
                witness.holds = witness.fresh = True
                witness.weight = parameter._version  # noqa: SLF001
                witness.version = parameter.grad._version  # noqa: SLF001

    def touched(self, names: Iterable[str]) -> None:
        """Take note of a change that was told."""
        for name in names:
            witness = self._all.get(name)
            parameter = None if witness is None else witness.weak()
            if witness is not None and parameter is not None and parameter.grad is not None:
                witness.version = parameter.grad._version  # noqa: SLF001

    def stepped(self, name: str) -> None:
        """Take note of an update that was told."""
        witness = self._all.get(name)
        if witness is not None:
            witness.fresh = False
            self.touched((name,))

    def cleared(self, name: str) -> None:
        """Take note of a clear that was told."""
        witness = self._all.get(name)
        if witness is not None:
            witness.holds = witness.fresh = False
            self.touched((name,))

    def forget(self, name: str) -> None:
        """Drop the witness of an optimizer that has died."""
        self._all.pop(name, None)

    def changes(self) -> Iterator[tuple[str, str]]:
        """Give what nobody has told: the optimizer, and "none", "zeros", "edited" or "weights"."""
        for name, witness in self._all.items():
            if not witness.holds:
                continue
            parameter = witness.weak()
            if parameter is None:
                continue
            if witness.fresh and parameter._version != witness.weight:  # noqa: SLF001
                witness.fresh = False
                yield name, "weights"
            grad = parameter.grad
            if grad is None:
                witness.holds = False
                yield name, "none"
            elif grad._version != witness.version:  # noqa: SLF001
                witness.version = grad._version  # noqa: SLF001
                if grad.device.type == "cpu" and not grad.any():
                    witness.holds = False
                    yield name, "zeros"
                else:
                    yield name, "edited"
