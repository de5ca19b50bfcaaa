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
from instep.fast.slots import Account

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
        self.account = Account()
        """Says, while one of our backwards runs, that fused layers may add to our slots."""
        self._optimizers = optimizers
        self._accumulate_in = accumulate_in
        self._parked: dict[str, Gradients] = {}
        self._widened: list[Tensor] = []
        self._listed = 0
        self._added = 0
        self._is_settled = False
        # Some parameters with their gradients as the window left them, to notice if anybody else
        # touches these: torch counts in-place changes of a tensor in its `_version`.
        self._witnesses: list[Tensor] = []
        self._seals: list[tuple[Tensor, int]] = []
        self._are_kept = False

    def open(self) -> None:
        """Take possession: no gradients but our own."""
        listed = grads.parameters_of(self._optimizers)
        members = self._take(list({id(p): p for p in listed}.values()))
        self._listed = len(listed)
        if self._are_kept:
            grads.clear(members)
        refuse_strays(members)
        self._are_kept = False
        self._widened = grads.narrower(members, self._accumulate_in)
        grads.demand(self._widened, None)
        self._added = 0
        self._is_settled = False
        self._witnesses, self._seals = [], []
        self.members = members

    def _take(self, parameters: list[Tensor]) -> list[Tensor]:
        """Return the tensors that a backward fills for these parameters: themselves."""
        return parameters

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
            self._added = 0
            self._is_settled = False
        self.active = term

    def begin(self) -> None:
        """Get ready for a backward of ours: sums in the wider type, where one is asked for."""
        if self._widened:
            grads.demand(self._widened, self._accumulate_in)

    def end(self, *, added: bool) -> None:
        """Note that it is over, and whether it has added to `.grad`."""
        if self._widened:
            grads.demand(self._widened, None)
        if not added:
            return
        self._added += 1
        # Gradients appear with the first backward, hardly ever later: look after 1, 2, 4, 8, ...
        if not self._is_settled and self._added & (self._added - 1) == 0:
            found = grads.unshare(self.members)
            self._is_settled = found == len(self.members)
            self._witnesses = self._choose_witnesses()
        self.seal()

    def _choose_witnesses(self) -> list[Tensor]:
        """Return the first and the last parameter with a gradient of each parameter group."""
        chosen: dict[int, Tensor] = {}
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                for ends in (group["params"], reversed(group["params"])):
                    for parameter in ends:
                        if parameter.grad is not None:
                            chosen[id(parameter)] = parameter
                            break
        return list(chosen.values())

    def seal(self) -> None:
        """Remember what the witnesses' gradients look like now."""
        seals = self._seals
        seals.clear()
        for witness in self._witnesses:
            gradient = witness.grad
            if gradient is not None:
                seals.append((gradient, gradient._version))  # noqa: SLF001 -- torch's own counter

    def require_untouched(self) -> None:
        """Raise if a gradient changed since our last backward, or appeared before our first."""
        if not self._added and self.active is None:
            refuse_strays(self.members, when="before a window's first backward")
            return
        witnesses, seals = self._witnesses, self._seals
        is_touched = len(seals) != len(witnesses)
        for witness, (gradient, version) in zip(witnesses, seals, strict=False):
            if witness.grad is not gradient or gradient._version != version:  # noqa: SLF001
                is_touched = True
        if is_touched:
            refuse_touched()

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
        self._added = 1
        self._witnesses = self._choose_witnesses()
        self.seal()

    def narrow(self) -> None:
        """Give gradients the type their optimizer expects, before it steps.

        Parameters that joined an optimizer since the opening have no whole gradient; they are left
        out of this update and join with the next window.
        """
        if self._widened:
            grads.narrow(self._widened)
        listed = grads.parameters_of(self._optimizers)
        if len(listed) != self._listed:
            known = {id(p) for p in self.members}
            grads.clear(p for p in listed if id(p) not in known)

    def largest_element(self) -> float:
        """Return the largest absolute value in the gradients (syncs)."""
        return grads.largest_element(self.gradients())

    def close(self, *, keep: bool) -> None:
        """Let go: gradients cleared, or kept readable until the next opening if asked for."""
        self.active = None
        self._parked = {}
        if not keep:
            grads.clear(self.members)
        self.narrow()
        self._are_kept = keep
        # Holding a seal would hold the memory of a gradient through the next evaluation.
        self._witnesses, self._seals = [], []


def refuse_touched() -> None:
    """Raise, because somebody else changed the gradients of an open window."""
    raise WindowError(
        "gradients changed inside a window, other than by window.backward().",
        why="zero_grad(), a plain loss.backward(), clipping or an edit of .grad came between two "
        "backwards; what is there now is no mean over declared items. The window was thrown away.",
        fix="remove that call from the loop: a window clears, scales and clips by itself.",
        more="stray-gradients",
    )


def refuse_strays(members: Sequence[Tensor], when: str = "when a window opened") -> None:
    """Raise if gradients are there that no window has made; zeros are cleared."""
    for member in members:
        if member.grad is not None:
            break
    else:
        return
    holders, strays = grads.with_gradients(members)
    if any(grads.to_host([s.count_nonzero() for s in grads.dense_values(strays)])):
        raise WindowError(
            f"{len(strays)} gradients that are not its own were there {when}.",
            why="something other than window.backward() called backward: a loss.backward() left in "
            "the loop, another loop before it, another stepper whose loss reaches these "
            "parameters, or losses from before they were in the optimizer.",
            fix="remove loss.backward() from the loop; after another loop, call zero_grad(). For "
            "several optimizers in one graph, pass them to one Stepper.",
            more="stray-gradients",
        )
    grads.clear(holders)
