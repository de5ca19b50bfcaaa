"""One parameter of each optimizer, whose gradient tells what was done to it by hand."""

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from instep.watching.later import sliced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from instep.watching.entries import Touched

_LOOKS = 3
"""On a device: times that zeros are looked for at the beginning, and that are believed later on."""
_SLICE = 64


class Gradient(NamedTuple):
    """A gradient as it was at some time."""

    weak: Any
    version: int

    def is_added_to(self) -> bool:
        """Say whether nothing but one backward at most has come since then."""
        grad = self.weak()
        return grad is not None and grad._version - self.version in {0, 1}  # noqa: SLF001


class _Witness:
    __slots__ = (
        "asked",
        "compared",
        "fresh",
        "holds",
        "key",
        "looks",
        "numbers",
        "used",
        "version",
        "weak",
        "weight",
    )

    def __init__(self, weak: Any) -> None:
        self.weak = weak
        self.holds = False  # a gradient is in it, as far as events tell
        self.used = False  # by a step, since the last backward
        self.key, self.version = 0, 0  # of the gradient as it was seen; a key of 0: there was none
        self.fresh = False  # it waits for its step: until then the weight must stay as it is
        self.weight = -1
        self.asked = 0  # on a device: how often it was to be looked for zeros
        self.looks: tuple[bool, ...] = ()  # the latest times: whether there were any
        # What a step has used, from the first time on that it was still there when the next
        # backward began: `grad.data.mul_(0.9)` is not counted either.
        self.numbers: torch.Tensor | None = None
        self.compared = -1

    def see(self) -> None:
        """Take note of which gradient there is, and how often it was changed."""
        parameter = self.weak()
        grad = None if parameter is None else parameter.grad
        if grad is None:
            self.key = self.version = 0
        else:
            self.key, self.version = id(grad), grad._version  # noqa: SLF001

    def is_as_seen(self, grad: Any) -> bool:
        """Say whether a gradient is the one that was seen, and as it was."""
        if grad is None:
            return self.key == 0
        return id(grad) == self.key and bool(grad._version == self.version)  # noqa: SLF001

    def is_blank(self, others: Callable[[], bool]) -> bool:
        """Say whether there are zeros where no clear was told: `grad.data.zero_()` is not counted.

        One gradient may be zero by itself: then the `others` are asked. This waits for the device,
        so there it is done a few times at first, then ever more seldom, and believed in between.
        """
        parameter = self.weak()
        grad = None if parameter is None else parameter.grad
        if grad is None or grad.is_sparse or type(grad) is not torch.Tensor:
            return False
        if grad.device.type == "cpu":
            return _is_zero(grad) and others()
        self.asked += 1
        if self.asked <= _LOOKS or self.asked & (self.asked - 1) == 0:
            self.looks = (*self.looks, _is_zero(grad) and others())[-_LOOKS:]
        return all(self.looks)

    def keep_numbers(self) -> None:
        """Keep some of what a step has used, if that was not cleared the last time."""
        parameter = self.weak()
        grad = None if parameter is None else parameter.grad
        self.numbers = None
        if 0 <= self.compared < _LOOKS and grad is not None and type(grad) is torch.Tensor:
            self.numbers = None if grad.is_sparse else sliced(grad, _SLICE).clone()

    def is_moved(self) -> bool:
        """Say whether there are other numbers than a step has used, where no change was counted.

        This waits for a device, so it is done a few times.
        """
        parameter = self.weak()
        grad = None if parameter is None else parameter.grad
        numbers, self.numbers = self.numbers, None
        self.compared += self.compared < _LOOKS
        if numbers is None or grad is None or numbers.device != grad.device:
            return False
        now = sliced(grad, _SLICE)
        return bool(((now != numbers) & ~(now.isnan() & numbers.isnan())).any())

    def change(self) -> Iterator[str]:
        """Give what is not as it was seen, and see it as it is now."""
        parameter = self.weak()
        if self.fresh and parameter is not None and parameter._version != self.weight:  # noqa: SLF001
            self.fresh = False
            yield "weights"
        grad = None if parameter is None else parameter.grad
        if self.is_as_seen(grad):
            return
        held, self.holds = self.holds, grad is not None
        self.see()
        if grad is None:
            if held:
                yield "none"
            return
        if grad.device.type == "cpu" and not grad.is_sparse and not grad.any():
            self.holds = False
            yield "zeros"
        else:
            yield "edited"


def _is_zero(grad: torch.Tensor) -> bool:
    return not (bool(sliced(grad, _SLICE).any()) or bool(grad.any()))  # each one is read once


class Witnesses:
    """Compares the gradients of witnesses with what events have told of them.

    PyTorch counts every change of a tensor in place. A number that has moved without an event was
    moved by hand; a gradient that is gone was dropped by hand, and another one was put there. A
    weight that moves between a backward and its step is moved by somebody who does more than step,
    and cannot be followed.
    """

    def __init__(self, is_blank: Callable[[str], bool] = lambda _: True) -> None:
        self._all: dict[str, _Witness] = {}
        self._is_blank = is_blank  # whether all gradients of an optimizer are zeros

    def meet(self, name: str, weak: Any) -> None:
        """Take a parameter of an optimizer that is new here: what is in it, nobody has told."""
        known = self._all.get(name)
        if known is None or known.weak() is None:
            self._all[name] = _Witness(weak)

    def used(self, parameters: Iterable[Any]) -> Gradient | None:
        """Return what is in the gradient of one of these parameters and was used by a step."""
        mine = set(map(id, parameters))
        for witness in self._all.values():
            parameter = witness.weak()
            grad = parameter.grad if parameter is not None and id(parameter) in mine else None
            if grad is not None and witness.used and witness.is_as_seen(grad):
                return Gradient(weakref.ref(grad), grad._version)  # noqa: SLF001
        return None

    def keep(self, names: Iterable[str]) -> None:
        """Forget all others: their optimizers are gone."""
        self._all = {name: self._all[name] for name in names if name in self._all}

    def added(self, touched: Touched) -> None:
        """Take note of a backward."""
        every = self._all
        for name, weak in touched.witnesses:
            witness = every[name] if name in every else None  # noqa: SIM401  # without a call
            if witness is None or (not witness.holds and witness.weak is not weak):
                # Where nothing is held yet, one that the losses do reach is the better witness.
                witness = self._all[name] = _Witness(weak)
            witness.used = False
            parameter = witness.weak()
            grad = None
            if parameter is not None:
                witness.weight = parameter._version  # noqa: SLF001
                grad = parameter.grad
            if grad is None:
                witness.key = witness.version = 0
                witness.holds = witness.fresh = False
            else:  # as `see` does it
                witness.key, witness.version = id(grad), grad._version  # noqa: SLF001
                witness.holds = witness.fresh = True

    def touched(self, names: Iterable[str]) -> None:
        """Take note of a change that was told."""
        every = self._all
        for name in names:
            if name in every:
                every[name].see()

    def stepped(self, name: str) -> None:
        """Take note of an update that was told."""
        witness = self._all.get(name)
        if witness is not None:
            witness.fresh = False
            witness.used = True
            parameter = witness.weak()
            # A step, or a hook behind it, that drops what it has used clears by hand: it is left to
            # be noticed, and so comes after the update.
            if parameter is None or parameter.grad is not None or not witness.holds:
                witness.see()
            if witness.compared >= 0:
                witness.keep_numbers()

    def cleared(self, name: str) -> None:
        """Take note of a clear that was told."""
        witness = self._all.get(name)
        if witness is not None:
            witness.holds = witness.fresh = False
            parameter = witness.weak()
            if parameter is not None and parameter.grad is None:  # nearly always
                witness.key = 0
            else:
                witness.see()

    def forget(self, name: str) -> None:
        """Drop the witness of an optimizer that has died, or that another thread steps."""
        # Another dict: this one may be gone through in the thread that is watched.
        self._all = {other: witness for other, witness in self._all.items() if other != name}

    def changes(self, *, goes_back: bool = False) -> list[tuple[str, str]]:
        """Return what nobody has told: whose, and "none", "zeros", "edited", "moved" or "weights".

        "moved": they are other numbers, and nobody knows since when.

        goes_back: a backward follows, so what a step has used should be gone by now.
        """
        found: list[tuple[str, str]] = []
        every = self._all
        for name in every:
            witness = every[name]
            # Three times in every update, and nearly always for nothing: asked for in few words.
            parameter = witness.weak()
            if parameter is not None:
                grad = parameter.grad
                if (
                    not witness.key
                    if grad is None
                    else id(grad) == witness.key and grad._version == witness.version  # noqa: SLF001
                ) and not (witness.fresh and parameter._version != witness.weight):  # noqa: SLF001
                    if goes_back and witness.used and witness.holds:
                        if witness.is_blank(partial(self._is_blank, name)):
                            witness.holds = False
                            found.append((name, "zeros"))
                        elif witness.compared < _LOOKS and witness.is_moved():
                            found.append((name, "moved"))
                    continue
            found += [(name, change) for change in witness.change()]
        return found
