"""Two passes: a loss on all representations of a batch, with the graph of one piece at a time.

The first pass encodes every piece and keeps the representations without their graph. The loss is
computed on all of them. Its backward reaches one operator, which encodes every piece again, this
time to backpropagate the piece's part of the representations' gradient, and hands the sum of the
parameters' gradients on. To everything around it that operator is a model like any other.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from instep.engine import gradients as grads
from instep.engine.autograd import has_reentrant
from instep.engine.replay import Replay
from instep.engine.representations import Joint, wide
from instep.errors import LossError, SplitError
from instep.fast.slots import in_parts
from instep.splits.tree import tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch import nn

    from instep.engine.statistics import Statistics
    from instep.splits.plan import Piece, Plan

    Encoders = Mapping[str, Callable[[Any], Any]]

SINGLE = ""
"""The name of an encoder that came without one."""


class TwoPass:
    """Encoders over the pieces of a batch, and the operator that stands for them in a graph."""

    def __init__(
        self,
        plan: Plan,
        encoders: Encoders,
        *,
        models: Sequence[nn.Module],
        parameters: Sequence[Tensor],
        statistics: Statistics | None = None,
        summed: bool = False,
    ) -> None:
        self.items: int | None = None
        """What a bare mean over the whole is a mean of; None if the pieces do not say."""
        self._plan = plan
        self._encoders = encoders
        self._parameters = [p for p in parameters if p.requires_grad]
        self._statistics = statistics
        self._replay = Replay(models)
        self._joints = {name: Joint(plan, summed=summed) for name in encoders}
        self._carries: list[bool] = []
        self._outputs: list[tuple[Tensor, int]] = []
        self._is_spent = False

    def representations(self) -> dict[str, Any]:
        """Run the first pass; return the representations of each encoder, attached to a graph."""
        counts: dict[int, int | None] = {}
        for index, piece, name in self._calls():
            counts[index] = piece.items
            self._replay.remember()
            with torch.enable_grad(), self._surrounding(piece, name):
                tree = self._encoders[name](piece.value)
            if not index:
                _refuse_reentrant(list(tensors(tree)))
            self._joints[name].add(tree)
            del tree
        self._replay.end()
        known = [count for count in counts.values() if count is not None]
        self.items = sum(known) if len(known) == len(counts) else None
        if self._statistics is not None and self._statistics.is_exact:
            self._statistics.require_agreement()
        joined = [leaf for joint in self._joints.values() for leaf in joint.joined()]
        self._carries = [flag for joint in self._joints.values() for flag in joint.carries]
        if not any(self._carries):
            _refuse_constant()
        carried = [leaf for leaf, carries in zip(joined, self._carries, strict=True) if carries]
        attached = iter(_Operator.apply(self, carried, *self._parameters))
        leaves = [
            next(attached) if carries else leaf
            for leaf, carries in zip(joined, self._carries, strict=True)
        ]
        # What the second pass should find again; a loss that writes into it is noticed by version.
        self._outputs = [(leaf.detach(), leaf._version) for leaf in leaves]  # noqa: SLF001
        rest = iter(leaves)
        return {name: joint.tree(rest) for name, joint in self._joints.items()}

    def _calls(self) -> Iterator[tuple[int, Piece, str]]:
        for index, piece in enumerate(self._plan):
            for name in self._encoders:
                yield index, piece, name

    @contextlib.contextmanager
    def _surrounding(self, piece: Piece, name: str) -> Iterator[list[Tensor]]:
        statistics = self._statistics
        with piece.around():
            if statistics is None:
                yield []
            else:
                with statistics.used(name) as extra:
                    yield extra

    def gradients(self, cotangents: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Run the second pass: return the gradients of the parameters."""
        if self._is_spent:
            raise LossError(
                "a second backward through the representations of one step.",
                why="each one encodes every piece again, and the first has already handed over "
                "their gradients.",
                fix="return the terms of a loss as a mapping, or their sum; leave out "
                "retain_graph and torch.autograd.grad by parameters in loss_fn.",
                more="two-pass",
            )
        self._is_spent = True
        rest = iter(cotangents)
        every = [next(rest) if carries else None for carries in self._carries]
        with _without_hooks(self._parameters), self._replay.under_way():
            statistics = self._statistics
            if statistics is not None and statistics.is_exact and statistics.layers:
                leaves = statistics.leaves()
                for _ in range(statistics.depth):
                    if statistics.pull(self._sweep(every, leaves)) <= 4 * statistics.precision():
                        break
                statistics.fix()
            return self._sweep(every, self._parameters)

    def _places(self) -> dict[str, slice]:
        """Return where the tensors of each encoder stand in the list of all."""
        ends = list(itertools.accumulate(len(joint) for joint in self._joints.values()))
        return {
            name: slice(end - len(joint), end)
            for (name, joint), end in zip(self._joints.items(), ends, strict=True)
        }

    def _sweep(
        self, cotangents: Sequence[Tensor | None], targets: Sequence[Tensor]
    ) -> list[Tensor | None]:
        """Backpropagate every piece by itself; return the sum of the gradients of `targets`."""
        sums = Sums(len(targets))
        agreement = _Agreement(self._outputs)
        places = self._places()
        for call, (index, piece, name) in enumerate(self._calls()):
            with (
                torch.enable_grad(),
                self._replay.again(call),
                self._surrounding(piece, name) as extra,
            ):
                leaves = list(tensors(self._encoders[name](piece.value)))
            joint, place = self._joints[name], places[name]
            if len(leaves) != len(joint):
                _refuse_difference()
            agreement.compare(joint, index, leaves, place.start)
            if targets is self._parameters:
                # While statistics are variables, what no parameter reaches has a graph as well.
                _require_carries(leaves, self._carries[place])
            outputs, seeds = _seeded(joint, index, leaves, cotangents[place])
            # Of an input that needs no gradient, the statistics depend on nothing.
            reached = [each for each in extra if each.requires_grad]
            outputs += reached
            seeds += [torch.ones_like(each) for each in reached]
            if outputs:
                with in_parts() if targets is self._parameters else contextlib.nullcontext():
                    sums.add(_grad(outputs, seeds, targets))
            del leaves, outputs, extra, reached
        agreement.require()
        return sums.totals


class Sums:
    """Gradients added up over pieces, in the type that they come in."""

    def __init__(self, count: int) -> None:
        self.totals: list[Tensor | None] = [None] * count
        self._is_own = [False] * count

    def add(self, found: Sequence[Tensor | None]) -> None:
        """Add the gradients of one piece.

        The first are taken as they are: autograd may give one tensor to two parameters, so that
        nothing is written into before it is a sum of our own.
        """
        for index, gradient in enumerate(found):
            total = self.totals[index]
            if gradient is None:
                continue
            if total is None:
                self.totals[index] = gradient
            elif total.is_sparse and not gradient.is_sparse:
                self.totals[index], self._is_own[index] = gradient + total, True
            elif self._is_own[index]:
                total.add_(gradient)
            else:
                self.totals[index], self._is_own[index] = total + gradient, True


class _Operator(torch.autograd.Function):
    """What stands for all pieces in the graph of the loss."""

    @staticmethod
    def forward(
        ctx: Any,
        passes: TwoPass,
        carried: Sequence[Tensor],
        *parameters: Tensor,  # noqa: ARG004 -- they are what the outputs depend on
    ) -> tuple[Tensor, ...]:
        ctx.passes = passes
        ctx.set_materialize_grads(False)
        return tuple(carried)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
        return (None, None, *ctx.passes.gradients(cotangents))


class _Agreement:
    """Whether the second pass computes what the first did.

    Rounding may differ (some kernels add in any order); half of a type's digits must be the same.
    The answers stay on their device and are read once, at the end.
    """

    def __init__(self, outputs: Sequence[tuple[Tensor, int]]) -> None:
        self._outputs = outputs
        self._sums: dict[int, Tensor] = {}
        self._differs: list[Tensor] = []

    def compare(self, joint: Joint, index: int, leaves: Sequence[Tensor], start: int) -> None:
        """Compare the representations of one piece, or add them up to compare at the end."""
        for place, leaf in enumerate(leaves, start):
            if joint.is_summed:
                found, summed = wide(leaf.detach()), self._sums.get(place)
                self._sums[place] = found if summed is None else summed + found
            else:
                self._look(joint.part(self._outputs[place][0], index), leaf.detach(), place)

    def _look(self, first: Tensor, second: Tensor, place: int) -> None:
        whole, version = self._outputs[place]
        if whole._version != version or not first.is_floating_point():  # noqa: SLF001
            return
        if first.shape != second.shape:
            _refuse_difference()
        allowed = torch.finfo(first.dtype).eps ** 0.5
        if first.numel():
            # Not a number is no difference: the close looks at what is not finite.
            self._differs.append((first - second).abs().max() > allowed * first.abs().max())

    def require(self) -> None:
        """Raise if the two differ."""
        for place, summed in self._sums.items():
            self._look(self._outputs[place][0], summed.to(self._outputs[place][0].dtype), place)
        if any(grads.to_host(self._differs)):
            _refuse_difference()


def _seeded(
    joint: Joint,
    index: int,
    leaves: Sequence[Tensor],
    cotangents: Sequence[Tensor | None],
) -> tuple[list[Tensor], list[Tensor]]:
    """Return the representations of a piece to backpropagate, with their gradients."""
    outputs, seeds = [], []
    for leaf, cotangent in zip(leaves, cotangents, strict=True):
        if leaf.requires_grad and cotangent is not None:
            outputs.append(leaf)
            seeds.append(joint.part(cotangent, index))
    return outputs, seeds


def _require_carries(leaves: Sequence[Tensor], carries: Sequence[bool]) -> None:
    pairs = zip(leaves, carries, strict=True)
    if any(leaf.requires_grad and not expected for leaf, expected in pairs):
        _refuse_difference()


def _grad(
    outputs: Sequence[Tensor], seeds: Sequence[Tensor], targets: Sequence[Tensor]
) -> Sequence[Tensor | None]:
    try:
        return torch.autograd.grad(outputs, targets, seeds, allow_unused=True)
    except RuntimeError as error:
        if "second time" not in str(error):
            raise
        raise LossError(
            "encode uses something that was computed before, outside of it.",
            why="each piece is backpropagated by itself, and the graph behind that was freed by "
            "the first of them.",
            fix="compute it inside encode.",
            more="two-pass",
        ) from error


@contextlib.contextmanager
def _without_hooks(parameters: Sequence[Tensor]) -> Iterator[None]:
    """Keep hooks on parameters for their whole gradient: they are called after the sum."""
    held = [(hooks, dict(hooks)) for p in parameters if (hooks := p._backward_hooks)]  # noqa: SLF001
    for hooks, _ in held:
        hooks.clear()
    try:
        yield
    finally:
        for hooks, before in held:
            hooks.update(before)


def _refuse_reentrant(leaves: Sequence[Tensor]) -> None:
    if has_reentrant(leaves):
        raise LossError(
            "the model uses reentrant activation checkpoints, in two passes.",
            why="they add to .grad by themselves while a piece is backpropagated, past the sum "
            "over pieces.",
            fix="pass use_reentrant=False to torch.utils.checkpoint.checkpoint.",
            more="two-pass",
        )


def _refuse_constant() -> None:
    raise SplitError(
        "encode returned nothing that a gradient could reach.",
        why="its representations are detached, integers, computed under no_grad, or no parameter "
        "that requires a gradient took part in them.",
        fix="return what the model computed, with gradients on; representations that are fixed "
        "can be computed before the step.",
        more="two-pass",
    )


def _refuse_difference() -> None:
    raise LossError(
        "a piece gave something else the second time.",
        why="every piece is run twice, with the same random states (torch, Python, numpy) and "
        "buffers; something else has changed in between: a generator of its own, or an attribute.",
        fix="draw from torch's default generator, and keep what forward changes in buffers.",
        more="two-pass",
    )
