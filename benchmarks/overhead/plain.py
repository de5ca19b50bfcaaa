"""The plain loop, written correctly: what everything else is compared with."""

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from benchmarks.overhead.measure import Batch, Pass

FEATURES, SAMPLES = 8, 4


def make_model() -> tuple[nn.Module, torch.optim.Optimizer]:
    """The smallest model with a weight and a bias: what remains is the loop."""
    torch.manual_seed(0)
    model = nn.Linear(FEATURES, FEATURES)
    return model, torch.optim.SGD(model.parameters(), lr=1e-3)


def make_batches(count: int) -> list[Batch]:
    """Inputs, labels, and the item count as a tensor for those who take it as one."""
    generator = torch.Generator().manual_seed(1)
    return [
        (
            torch.randn(SAMPLES, FEATURES, generator=generator),
            torch.randint(FEATURES, (SAMPLES,), generator=generator),
            torch.tensor(SAMPLES),
        )
        for _ in range(count)
    ]


def plain(size: int, *, clip_norm: float | None = None) -> Pass:
    """zero_grad, weighted backwards, (clip,) step."""
    model, optimizer = make_model()
    parameters = list(model.parameters())

    def run(batches: Sequence[Batch]) -> None:
        for start in range(0, len(batches), size):
            window = batches[start : start + size]
            total = sum(len(inputs) for inputs, _, _ in window)
            optimizer.zero_grad()
            for inputs, labels, _ in window:
                loss = cross_entropy(model(inputs), labels)
                (loss * (len(inputs) / total)).backward()
            if clip_norm is not None:
                torch.nn.utils.clip_grad_norm_(parameters, clip_norm)
            optimizer.step()

    return run


def plain_bf16(size: int) -> Pass:
    """The same loop with autocast around forward and loss."""
    model, optimizer = make_model()

    def run(batches: Sequence[Batch]) -> None:
        for start in range(0, len(batches), size):
            window = batches[start : start + size]
            total = sum(len(inputs) for inputs, _, _ in window)
            optimizer.zero_grad()
            for inputs, labels, _ in window:
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    loss = cross_entropy(model(inputs), labels)
                (loss * (len(inputs) / total)).backward()
            optimizer.step()

    return run
