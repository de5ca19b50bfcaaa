"""BatchNorm under splitting: the statistics of the whole batch in each of its pieces.

One pass over the whole batch without a graph records the mean and variance that each layer
normalises by, and updates running statistics once, as plain PyTorch does. The pieces then use what
was recorded, so that their forward is the whole batch's. Its gradient flows through the statistics,
too. "window" estimates that part from each piece, as if what the piece tells about the statistics
were all; as constants they would give a gradient several times as far from the true one. "exact"
takes the statistics as variables: with s = S(parameters, s) and λ = dL/ds the part is
λ · dS/d(parameters), a sum over samples and so over pieces. Statistics depend on those of earlier
layers only, so repeating λ ← ∂L/∂s + λ · ∂S/∂s from 0 arrives after as many rounds as there are
layers.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch.nn.modules.batchnorm import BatchNorm1d, BatchNorm2d, BatchNorm3d, _BatchNorm

from instep.engine import rng
from instep.engine.replay import Kept
from instep.errors import SplitError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

    from torch import Tensor, nn

BatchNormMode = Literal["piece", "window", "exact"]
_MODES = ("piece", "window", "exact")


@dataclass(slots=True)
class Record:
    """The statistics of one call of one layer, on the whole batch."""

    mean: Tensor
    variance: Tensor
    count: int
    """Values per channel."""
    rounding: float
    """Of the type that the values came in."""
    pull: tuple[Tensor, Tensor] | None = None
    """λ: how the loss depends on mean and variance, through everything after this layer."""
    found: list[Tensor] = field(default_factory=list)
    """Mean and variance added up over the pieces, to compare."""


class Statistics:
    """The statistics of every BatchNorm call in a forward of the whole batch."""

    def __init__(self, models: Sequence[nn.Module], mode: BatchNormMode) -> None:
        self._models = models
        self.is_exact = mode == "exact"
        self.layers = layers_of(models)
        self._records: dict[Hashable, dict[_BatchNorm, list[Record]]] = {}
        if mode == "exact":
            _refuse_own_forwards(models, self.layers)

    def measure(self, functions: Mapping[str, Callable[[Any], Any]], batch: Any) -> None:
        """Run the whole batch once, without graph: record, and update running statistics."""
        if not self.layers:
            return
        random = rng.full_state()
        others = Kept(self._models, leave_out=frozenset(self.layers))
        cached = torch.is_autocast_cache_enabled()
        # Weights that autocast casts without a graph must not be met again by those with one.
        torch.set_autocast_cache_enabled(False)
        try:
            for name, function in functions.items():
                found: dict[_BatchNorm, list[Record]] = {layer: [] for layer in self.layers}
                with torch.no_grad(), _hooked(self.layers, _recorder(found), None):
                    function(batch)
                self._records[name] = found
        finally:
            torch.set_autocast_cache_enabled(cached)
            others.put_back()
            rng.restore(random)
        if not any(calls for found in self._records.values() for calls in found.values()):
            raise SplitError(
                "no call of a BatchNorm layer was seen.",
                why="the model has some in training mode, but their hooks did not run: it is "
                "compiled, or does not use them.",
                fix="pass the plain module, or leave batchnorm= out.",
                more="batchnorm",
            )

    @contextlib.contextmanager
    def used(self, name: str) -> Iterator[list[Tensor]]:
        """Let the layers normalise by what was recorded, in one call of one function on a piece.

        What is yielded fills with this piece's part of Σ λ · S, if λ is known.
        """
        extra: list[Tensor] = []
        if not self.layers:
            yield extra
            return
        waiting = {layer: iter(calls) for layer, calls in self._records[name].items()}
        if self.is_exact:
            with _replaced(waiting, extra):
                yield extra
        else:
            with _hooked(self.layers, *_frozen(waiting)):
                yield extra
        for layer, rest in waiting.items():
            if next(rest, None) is not None:
                _refuse_calls(layer)

    def leaves(self) -> list[Tensor]:
        """Return every mean and variance, as variables of the loss."""
        found = []
        for record in self._all():
            record.mean.requires_grad_()
            record.variance.requires_grad_()
            found += [record.mean, record.variance]
        return found

    def fix(self) -> None:
        """Make them constants again."""
        for record in self._all():
            record.mean.requires_grad_(False)  # noqa: FBT003 -- torch's
            record.variance.requires_grad_(False)  # noqa: FBT003 -- torch's

    def pull(self, gradients: Sequence[Tensor | None]) -> float:
        """Take gradients of the loss by the leaves as λ; return how much of it is new."""
        change = size = 0.0
        for index, record in enumerate(self._all()):
            pair = [
                torch.zeros_like(leaf) if found is None else found.detach()
                for found, leaf in zip(
                    gradients[2 * index : 2 * index + 2],
                    (record.mean, record.variance),
                    strict=True,
                )
            ]
            before = record.pull or (torch.zeros_like(pair[0]), torch.zeros_like(pair[1]))
            for new, old in zip(pair, before, strict=True):
                change += float((new - old).square().sum())
                size += float(new.square().sum())
            record.pull = (pair[0], pair[1])
        return (change / size) ** 0.5 if size else 0.0

    @property
    def depth(self) -> int:
        """How many statistics may depend on each other: every call of every layer."""
        return sum(1 for _ in self._all())

    def precision(self) -> float:
        """Return the rounding of the type that statistics are in."""
        return max((torch.finfo(record.mean.dtype).eps for record in self._all()), default=0.0)

    def require_agreement(self) -> None:
        """Raise if the pieces' statistics do not add up to the whole batch's."""
        for layer, record in (
            (layer, record)
            for found in self._records.values()
            for layer, calls in found.items()
            for record in calls
        ):
            if _differs(record, layer.eps):
                raise SplitError(
                    f"the pieces' statistics at a {type(layer).__name__} do not add up to those "
                    "of the whole batch.",
                    why="something before it is random (dropout), or depends on the other samples, "
                    "or the pieces overlap; there is no exact gradient of one forward then.",
                    fix='pass batchnorm="window", or take the random layers out from before it.',
                    more="batchnorm",
                )
            record.found = []

    def _all(self) -> Iterator[Record]:
        for found in self._records.values():
            for calls in found.values():
                yield from calls


def layers_of(models: Sequence[nn.Module]) -> list[_BatchNorm]:
    """Return the BatchNorm layers that normalise by the batch now."""
    found = {m: None for model in models for m in model.modules() if isinstance(m, _BatchNorm)}
    layers = [layer for layer in found if layer.training or layer.running_mean is None]
    for layer in layers:
        if isinstance(layer, torch.nn.SyncBatchNorm):
            raise SplitError(
                "the model has a SyncBatchNorm.",
                why="it averages its statistics over processes, in every forward.",
                fix="use a plain BatchNorm layer here, or leave batchnorm= out.",
                more="batchnorm",
            )
    return layers


def mode_of(batchnorm: object) -> BatchNormMode:
    """Return how BatchNorm is to be treated; None is each piece by itself, as without a word."""
    if batchnorm is None:
        return "piece"
    if batchnorm not in _MODES:
        raise SplitError(
            f"batchnorm is {batchnorm!r}.",
            why="statistics are those of each piece, or of the whole batch.",
            fix='pass batchnorm="window", batchnorm="exact", or leave it out.',
            more="batchnorm",
        )
    return batchnorm  # type: ignore[return-value]


def _recorder(found: Mapping[_BatchNorm, list[Record]]) -> Callable[..., None]:
    def record(layer: _BatchNorm, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = _input(args, kwargs)
        rounding, x = torch.finfo(given.dtype).eps, _wide(given)
        dims = _dims(x)
        variance, mean = torch.var_mean(x, dims, correction=0)
        found[layer].append(Record(mean, variance, x.numel() // x.shape[1], rounding))

    return record


def _frozen(
    waiting: Mapping[_BatchNorm, Iterator[Record]],
) -> tuple[Callable[..., Any], Callable[..., None]]:
    """Return hooks that make a layer evaluate with what was recorded in place of its buffers."""
    held: dict[nn.Module, tuple[bool, Tensor | None, Tensor | None]] = {}

    def before(
        layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        record = _next(layer, waiting)
        x = _input(args, kwargs)
        _refuse_single(layer, x)
        held[layer] = layer.training, layer.running_mean, layer.running_var
        like = layer.running_mean if layer.weight is None else layer.weight
        dtype = record.mean.dtype if like is None else like.dtype
        layer.training = False
        layer.running_mean = record.mean.to(dtype)
        layer.running_var = record.variance.to(dtype)
        return (_Through.apply(x, record.mean, record.variance + layer.eps),), {}

    def after(layer: Any, *_: object) -> None:
        if layer in held:
            layer.training, layer.running_mean, layer.running_var = held.pop(layer)

    return before, after


class _Through(torch.autograd.Function):
    """The input of a layer, unchanged; its gradient gets what flows through the statistics.

    The statistics are those of all, what depends on them is estimated from this piece alone: the
    formula of BatchNorm's own backward, with the piece's sums over its own count.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        ctx.save_for_backward(x, mean, variance)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        x, mean, variance = ctx.saved_tensors
        values, wide = _wide(x), _wide(gradient)
        dims, shape = _dims(values), [1, -1] + [1] * (values.dim() - 2)
        pull = (wide * (values - mean.view(shape))).mean(dims, keepdim=True) / variance.view(shape)
        through = wide.mean(dims, keepdim=True) + (values - values.mean(dims, keepdim=True)) * pull
        return (wide - through).to(gradient.dtype), None, None


@contextlib.contextmanager
def _hooked(
    layers: Sequence[nn.Module], before: Callable[..., Any], after: Callable[..., None] | None
) -> Iterator[None]:
    with contextlib.ExitStack() as hooks:
        for layer in layers:
            hooks.callback(layer.register_forward_pre_hook(before, with_kwargs=True).remove)
            if after is not None:
                hooks.callback(layer.register_forward_hook(after, always_call=True).remove)
        yield


@contextlib.contextmanager
def _replaced(
    waiting: Mapping[_BatchNorm, Iterator[Record]], extra: list[Tensor]
) -> Iterator[None]:
    """Give each layer a forward in which the statistics are variables."""

    def forward_of(layer: Any) -> Callable[[Tensor], Tensor]:
        def forward(input: Tensor) -> Tensor:  # noqa: A002 -- the name that torch gives it
            return _normalised(layer, _next(layer, waiting), input, extra)

        return forward

    try:
        for layer in waiting:
            layer.__dict__["forward"] = forward_of(layer)
        yield
    finally:
        for layer in waiting:
            layer.__dict__.pop("forward", None)


def _normalised(layer: _BatchNorm, record: Record, x: Tensor, extra: list[Tensor]) -> Tensor:
    values = _wide(x)
    dims = _dims(values)
    shape = [1, -1] + [1] * (values.dim() - 2)
    # The derivative of the variance by the mean is zero where the mean is the batch's own.
    centred = values - record.mean.detach().view(shape)
    if record.pull is not None:
        by_mean, by_variance = (pull.view(shape) for pull in record.pull)
        extra.append((by_mean * values + by_variance * centred.square()).sum() / record.count)
    else:
        _count(record, values.detach(), centred.detach(), dims)
    scale = (record.variance + layer.eps).rsqrt()
    out = (values - record.mean.view(shape)) * scale.view(shape)
    if layer.weight is not None:
        out = out * layer.weight.view(shape) + layer.bias.view(shape)
    return out.to(x.dtype)


def _count(record: Record, values: Tensor, centred: Tensor, dims: list[int]) -> None:
    parts = [values.sum(dims) / record.count, centred.square().sum(dims) / record.count]
    if record.found:
        parts = [part + found for part, found in zip(parts, record.found, strict=True)]
    record.found = parts


def _differs(record: Record, eps: float) -> bool:
    """Whether what the pieces added up to is another mean or variance, beyond rounding.

    The same numbers are computed in pieces of other shapes, so that half of their digits count, or
    where they were narrow, all but two bits.
    """
    mean, variance = (
        found - true.detach()
        for found, true in zip(record.found, (record.mean, record.variance), strict=True)
    )
    size = record.variance.detach() + eps
    off = mean.square() / (size + record.mean.detach().square()) + (variance / size).square()
    allowed = max(torch.finfo(mean.dtype).eps ** 0.5, 4 * record.rounding)
    return bool(off.max() > allowed**2)


def _next(layer: _BatchNorm, waiting: Mapping[_BatchNorm, Iterator[Record]]) -> Record:
    record = next(waiting[layer], None)
    if record is None:
        _refuse_calls(layer)
    return record  # type: ignore[return-value]


def _input(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    found: Tensor = args[0] if args else kwargs["input"]
    return found


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _dims(x: Tensor) -> list[int]:
    return [0, *range(2, x.dim())]


def _refuse_calls(layer: nn.Module) -> None:
    raise SplitError(
        f"a {type(layer).__name__} was called another number of times for a piece.",
        why="its statistics were recorded call by call in a forward of the whole batch, and each "
        "call of a piece uses those of the same call.",
        fix="let the forward take the same way for every piece, or leave batchnorm= out.",
        more="batchnorm",
    )


def _refuse_single(layer: nn.Module, x: Tensor) -> None:
    if x.numel() == x.shape[1] and x.requires_grad:
        raise SplitError(
            f"a {type(layer).__name__} was given a piece with one value per channel.",
            why="how the loss depends on statistics is estimated from the values of a piece, and "
            "one value would cancel its own gradient.",
            fix='make pieces of several samples, or pass batchnorm="exact".',
            more="batchnorm",
        )


def _refuse_own_forwards(models: Sequence[nn.Module], layers: Sequence[nn.Module]) -> None:
    names = {module: name for model in models for name, module in model.named_modules()}
    standard = {_BatchNorm.forward, BatchNorm1d.forward, BatchNorm2d.forward, BatchNorm3d.forward}
    for layer in layers:
        if type(layer).forward not in standard:
            raise SplitError(
                f"{names.get(layer) or 'a layer'} is a {type(layer).__name__} with a forward of "
                "its own.",
                why='batchnorm="exact" computes the normalisation itself, to differentiate by its '
                "statistics, and cannot know what else this forward does.",
                fix='pass batchnorm="window", or use a layer of torch.nn.',
                more="batchnorm",
            )
