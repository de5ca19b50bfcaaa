"""The gradient buffers of one open window: in `.grad`, and parked while another term uses it.

A window owns the gradients of its members from its opening to its end. Two things would break that
silently and are looked for here: somebody else touching a gradient or a weight in between (a
`zero_grad`, `step` or plain `backward` left in the loop), and autograd handing the same memory to
two parameters, which in-place sums and products would count twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.engine import gradients as grads
from instep.errors import WindowError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch
    from torch import Tensor
    from torch.optim import Optimizer

Gradients = list["Tensor | None"]
SHARED = ""
"""The name of the buffer that terms share when their counts are known ahead."""


class Buffers:
    """Gradients of the parameters that were in the optimizers when the window opened."""

    def __init__(self, optimizers: Sequence[Optimizer], accumulate_in: torch.dtype | None) -> None:
        self.members: list[Tensor] = []
        self.active: str | None = None
        self._optimizers = optimizers
        self._accumulate_in = accumulate_in
        self._parked: dict[str, Gradients] = {}
        self._widened: list[Tensor] = []
        self._missing: list[Tensor] = []
        # One parameter as the window left it, to notice if anybody else touches it: torch counts
        # in-place changes of a tensor in its `_version`.
        self._witness: Tensor | None = None
        self._sealed: tuple[Tensor, int, int] | None = None
        self._are_kept = False

    def open(self) -> None:
        """Take possession: no gradients but our own, narrow ones to be summed in a wider type."""
        members = list({id(p): p for p in grads.parameters_of(self._optimizers)}.values())
        if self._are_kept and self._is_sealed():
            grads.clear(members)
        _refuse_strays(members)
        self._are_kept = False
        self._witness = None
        self._widened = grads.widen(members, self._accumulate_in)
        self._missing = self.members = members

    def gradients(self) -> list[Tensor]:
        """Return the gradients that are in `.grad` now."""
        return [p.grad for p in self.members if p.grad is not None]

    def by_term(self) -> dict[str, Gradients]:
        """Return every buffer under the name of its term."""
        return {self.active or SHARED: [p.grad for p in self.members], **self._parked}

    @property
    def is_single(self) -> bool:
        """Whether all gradients of the window are in `.grad`."""
        return not self._parked

    def activate(self, term: str) -> None:
        """Let `.grad` be this term's buffer, and park the one that was there."""
        if self.active == term:
            return
        if self.active is not None:
            self._parked[self.active] = [p.grad for p in self.members]
            waiting = self._parked.pop(term, None)
            grads.assign(self.members, waiting or [None] * len(self.members))
            self._missing = self.members
        self.active = term

    def added(self) -> None:
        """Note that a backward of ours has just added to `.grad`."""
        if self._missing:
            grads.unshare(self.members)
            self._missing = [p for p in self._missing if p.grad is None]
            self._witness = None
        self.seal()

    def seal(self) -> None:
        """Remember what `.grad` looks like now."""
        witness = self._witness
        if witness is None or witness.grad is None:
            witness = next((p for p in self.members if p.grad is not None), None)
            self._witness = witness
        if witness is not None:
            gradient = witness.grad
            self._sealed = (gradient, gradient._version, witness._version)  # type: ignore[union-attr, assignment]  # noqa: SLF001

    def _is_sealed(self) -> bool:
        if self._witness is None or self._sealed is None:
            return True
        gradient, version, _ = self._sealed
        return self._witness.grad is gradient and gradient._version == version  # noqa: SLF001

    def require_untouched(self) -> None:
        """Raise if a gradient or a weight changed since our last backward."""
        witness, sealed = self._witness, self._sealed
        if witness is None or sealed is None:
            return
        gradient, version, weight_version = sealed
        if witness.grad is not gradient or gradient._version != version:  # noqa: SLF001
            raise WindowError(
                "gradients changed inside a window, other than by window.backward().",
                why="zero_grad(), a plain loss.backward() or an edit of .grad was called between "
                "two "
                "backwards; what is there now is no mean over declared items. The window was "
                "thrown away.",
                fix="remove that call from the loop: a window clears, scales and clips by itself.",
                more="stray-gradients",
            )
        if witness._version != weight_version:  # noqa: SLF001
            raise WindowError(
                "weights changed inside a window.",
                why="optimizer.step() or another in-place change came between two backwards, so "
                "the "
                "gradients belong to different weights. The window was thrown away.",
                fix="remove that call from the loop: the window steps at its end.",
                more="stray-gradients",
            )

    def scale(self, ratio: float) -> None:
        """Multiply every buffer, when the loss scale changes in the middle of a window."""
        for buffer in self.by_term().values():
            grads.multiply([g for g in buffer if g is not None], ratio)
        self.seal()

    def merge(self, factors: Mapping[str, float]) -> None:
        """Fold the buffers of all terms into `.grad`, each multiplied by its own factor.

        A factor of 0 says the term had no items: its buffer holds 0/0 at worst, and is dropped.
        """
        merged: Gradients = [None] * len(self.members)
        for term, buffer in self.by_term().items():
            if not factors[term]:
                continue
            grads.multiply([g for g in buffer if g is not None], factors[term])
            for index, gradient in enumerate(buffer):
                held = merged[index]
                if gradient is not None:
                    merged[index] = gradient if held is None else held.add_(gradient)
        self._parked = {}
        grads.assign(self.members, merged)

    def restore(self, saved: Mapping[str, Gradients], active: str | None) -> None:
        """Fill the buffers of a window that was saved while it was open."""
        self.active = active
        for term, buffer in saved.items():
            whole = [*buffer, *[None] * (len(self.members) - len(buffer))]
            if term == (active or SHARED):
                grads.assign(self.members, whole)
            else:
                self._parked[term] = whole
        self.seal()

    def narrow(self) -> None:
        """Give gradients the type their optimizer expects, before it steps.

        Parameters that joined an optimizer since the opening have no whole gradient; they are left
        out of this update and join with the next window.
        """
        grads.narrow(self._widened)
        self._widened = []
        known = {id(p) for p in self.members}
        grads.clear(p for p in grads.parameters_of(self._optimizers) if id(p) not in known)

    def close(self, *, keep: bool) -> None:
        """Let go: gradients cleared, or kept readable until the next opening if asked for."""
        self.active = None
        self._parked = {}
        if not keep:
            grads.clear(self.members)
        self.narrow()
        self._are_kept = keep
        self._witness = None
        if keep:
            self.seal()


def _refuse_strays(members: Sequence[Tensor]) -> None:
    holders, strays = grads.with_gradients(members)
    if not strays:
        return
    if any(grads.to_host([s.count_nonzero() for s in grads.dense_values(strays)])):
        raise WindowError(
            f"a window opened on {len(strays)} gradients that are not its own.",
            why="something outside the window called backward: another loop, another stepper whose "
            "loss reaches these parameters, or losses from before they were in the optimizer.",
            fix="call zero_grad() before the loop; for several optimizers in one graph, pass them "
            "to one Stepper.",
            more="stray-gradients",
        )
    grads.clear(holders)
