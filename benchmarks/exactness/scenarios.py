"""The work that every peer is given, as plain data: micro-batches of targets, -100 = ignored."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.exactness.losses import CLASSES, IGNORED, Term, TokenMean

FEATURES, TOKENS, SAMPLES = 6, 6, 4


class Kind(Enum):
    """What a peer has to be able to express; one loop of an adapter answers one kind."""

    EPOCH = "one epoch"
    TWO_OPTIMIZERS = "one loss, one optimizer per layer"
    RESUME = "saved and resumed in the middle of a window"
    BREAK = "left in the middle of a window, then a whole epoch"
    ADVERSARIAL = "two losses, two models, two optimizers"
    SCALED = "two losses, two optimizers, one GradScaler"


@dataclass(frozen=True, eq=False)
class MicroBatch:
    """Samples of tokens: inputs (samples, tokens, features), targets (samples, tokens, terms)."""

    inputs: Tensor
    targets: Tensor


@dataclass(frozen=True, eq=False)
class Scenario:
    """One column of the table."""

    title: str
    micro_batches: tuple[MicroBatch, ...]
    kind: Kind = Kind.EPOCH
    loss: TokenMean = field(default_factory=TokenMean)
    window: int = 4
    clip_norm: float | None = None
    learning_rates: tuple[float, ...] = (0.5,)
    # Micro-batches seen before the interruption (RESUME, BREAK).
    interrupted_after: int = 0
    # Micro-batches per update of each optimizer (ADVERSARIAL, SCALED).
    sizes: tuple[tuple[str, int], ...] = ()
    init_scale: float = 2.0**10
    growth_interval: int = 1

    def loader(self, *, batch_size: int = SAMPLES) -> "DataLoader[tuple[Tensor, ...]]":
        """The samples in order; only the last batch can be short, as in a real loader."""
        inputs = torch.cat([micro.inputs for micro in self.micro_batches])
        targets = torch.cat([micro.targets for micro in self.micro_batches])
        return DataLoader(TensorDataset(inputs, targets), batch_size=batch_size)

    def windows(self) -> Iterator[tuple[MicroBatch, ...]]:
        """The micro-batches of each update."""
        for start in range(0, len(self.micro_batches), self.window):
            yield self.micro_batches[start : start + self.window]

    def fresh_model(self) -> nn.Module:
        """The same float64 weights at every call."""
        torch.manual_seed(0)
        if self.kind in (Kind.ADVERSARIAL, Kind.SCALED):
            return nn.ModuleDict({"g": _mlp(FEATURES), "d": _mlp(CLASSES)}).double()
        return _mlp(self.loss.width).double()

    def parameter_groups(self, model: nn.Module) -> list[list[nn.Parameter]]:
        """The parameters of each optimizer: all of them, or one group per module with weights."""
        if len(self.learning_rates) == 1:
            return [list(model.parameters())]
        return [list(child.parameters()) for child in model.children() if list(child.parameters())]

    def optimizers(self, model: nn.Module) -> list[torch.optim.Optimizer]:
        """Plain SGD: its update is linear in the gradient, so it hides no factor."""
        groups = self.parameter_groups(model)
        return [
            torch.optim.SGD(group, lr=rate)
            for group, rate in zip(groups, self.learning_rates, strict=True)
        ]


def _mlp(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, width))


def _micro_batches(count: int, *, seed: int, terms: int = 1) -> tuple[MicroBatch, ...]:
    """Inputs at random, targets from a fixed linear teacher.

    A task that can be learnt, so micro-batches agree about the direction. With targets at random
    most errors of the ragged columns come out larger (.11 becomes .59); what is `ok` stays `ok`.
    """
    generator = torch.Generator().manual_seed(seed)
    teacher = torch.randn(
        terms, FEATURES, CLASSES, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )

    def micro_batch() -> MicroBatch:
        inputs = torch.randn(SAMPLES, TOKENS, FEATURES, generator=generator, dtype=torch.float64)
        return MicroBatch(inputs, torch.einsum("stf,kfc->stkc", inputs, teacher).argmax(-1))

    return tuple(micro_batch() for _ in range(count))


def _ignoring(micro: MicroBatch, *, kept: float, seed: int) -> MicroBatch:
    """The same micro-batch with about `kept` of its targets still counted."""
    generator = torch.Generator().manual_seed(seed)
    ignored = torch.rand(micro.targets.shape, generator=generator) >= kept
    return MicroBatch(micro.inputs, micro.targets.masked_fill(ignored, IGNORED))


def _padded(count: int) -> tuple[MicroBatch, ...]:
    """Very different numbers of tokens per micro-batch, as packed or padded text has."""
    shares = (1.0, 0.1, 0.5, 0.25)
    return tuple(
        _ignoring(micro, kept=shares[index % len(shares)], seed=index)
        for index, micro in enumerate(_micro_batches(count, seed=3))
    )


def _short_last_micro_batch() -> tuple[MicroBatch, ...]:
    *whole, last = _micro_batches(8, seed=2)
    return (*whole, MicroBatch(last.inputs[:1], last.targets[:1]))


def _empty_window() -> tuple[MicroBatch, ...]:
    padded = _padded(12)
    empty = (_ignoring(micro, kept=0.0, seed=0) for micro in padded[4:8])
    return (*padded[:4], *empty, *padded[8:])


def _one_empty_micro_batch() -> tuple[MicroBatch, ...]:
    first, second, *rest = _micro_batches(8, seed=5)
    return (first, _ignoring(second, kept=0.0, seed=0), *rest)


def _two_terms() -> tuple[MicroBatch, ...]:
    """Dense first targets, sparse second ones: two denominators that do not move together."""
    micro_batches = []
    for index, micro in enumerate(_micro_batches(8, seed=6, terms=2)):
        dense = _ignoring(micro, kept=(0.9, 0.5)[index % 2], seed=index).targets[..., :1]
        sparse = _ignoring(micro, kept=(0.1, 0.4, 0.7)[index % 3], seed=index).targets[..., 1:]
        micro_batches.append(MicroBatch(micro.inputs, torch.cat([dense, sparse], dim=-1)))
    return tuple(micro_batches)


def _with_overflow() -> tuple[MicroBatch, ...]:
    """One infinite input in the sixth micro-batch.

    tanh makes it a finite activation, so every loss is finite; the gradient of the first layer it
    meets is 0 × inf. Of the two models only the one that reads the inputs overflows.
    """
    micro_batches = list(_micro_batches(16, seed=7))
    inputs = micro_batches[5].inputs.clone()
    inputs[0, 0, 0] = float("inf")
    micro_batches[5] = MicroBatch(inputs, micro_batches[5].targets)
    return tuple(micro_batches)


def ragged() -> tuple[Scenario, ...]:
    """The first table: one epoch, whole or ragged."""
    return (
        Scenario("equal", _micro_batches(8, seed=0)),
        Scenario("short last window", _micro_batches(6, seed=1)),
        Scenario("short last micro-batch", _short_last_micro_batch()),
        Scenario("ignored tokens", _padded(8)),
        Scenario("one empty window", _empty_window()),
        Scenario("clip", _micro_batches(8, seed=0), clip_norm=0.05),
        Scenario(
            "two optimizers",
            _micro_batches(6, seed=1),
            kind=Kind.TWO_OPTIMIZERS,
            learning_rates=(0.5, 0.25),
        ),
    )


def situations() -> tuple[Scenario, ...]:
    """The second table: what happens to loops in real projects."""
    rates = (0.5, 0.25)
    same, mixed = (("g", 4), ("d", 4)), (("g", 2), ("d", 4))
    eight, sixteen = _micro_batches(8, seed=4), _micro_batches(16, seed=7)
    return (
        Scenario("mid-window resume", eight, kind=Kind.RESUME, interrupted_after=6),
        Scenario("break, next epoch", eight, kind=Kind.BREAK, interrupted_after=6),
        Scenario(
            "GAN, windows 4 and 4", sixteen, kind=Kind.ADVERSARIAL, sizes=same, learning_rates=rates
        ),
        Scenario(
            "GAN, windows 2 and 4",
            sixteen,
            kind=Kind.ADVERSARIAL,
            sizes=mixed,
            learning_rates=rates,
        ),
        Scenario(
            "GradScaler, windows 4 and 4",
            _with_overflow(),
            kind=Kind.SCALED,
            sizes=same,
            learning_rates=rates,
        ),
        Scenario(
            "GradScaler, windows 2 and 4",
            _with_overflow(),
            kind=Kind.SCALED,
            sizes=mixed,
            learning_rates=rates,
        ),
        Scenario(
            "empty micro-batch, masked mean",
            _one_empty_micro_batch(),
            loss=TokenMean(masked_by_hand=True),
        ),
        Scenario(
            "two terms, two denominators",
            _two_terms(),
            loss=TokenMean(terms=(Term("lm", 1.0), Term("box", 0.5))),
        ),
    )
