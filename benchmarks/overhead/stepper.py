"""`instep.Stepper`, in loop style and in function style."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import instep
from benchmarks.overhead.measure import Batch, Pass
from benchmarks.overhead.plain import SAMPLES, make_model

Precision = Literal["fp32", "bf16"]


def int_items(size: int, *, clip_norm: float | None = None, precision: Precision = "fp32") -> Pass:
    """The item count as a Python number."""
    model, optimizer = make_model()
    stepper = instep.Stepper(model, optimizer, clip_norm=clip_norm, precision=precision)

    def run(batches: Sequence[Batch]) -> None:
        for window in stepper.windows(batches, size=size):
            for inputs, labels, _ in window:
                loss = cross_entropy(model(inputs), labels)
                window.backward(loss, items=len(inputs))

    return run


def tensor_items(size: int) -> Pass:
    """The item count as a 0-dim tensor, as token counts are."""
    model, optimizer = make_model()
    stepper = instep.Stepper(model, optimizer)

    def run(batches: Sequence[Batch]) -> None:
        for window in stepper.windows(batches, size=size):
            for inputs, labels, items in window:
                loss = cross_entropy(model(inputs), labels)
                window.backward(loss, items=items)

    return run


def function_style(size: int) -> Pass:
    """One call per window. Cutting the batch into micro-batches is part of the time."""
    model, optimizer = make_model()
    stepper = instep.Stepper(model, optimizer)

    def loss_fn(piece: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
        inputs, labels = piece
        return cross_entropy(model(inputs), labels), len(inputs)

    joined: dict[int, list[tuple[Tensor, Tensor]]] = {}

    def run(batches: Sequence[Batch]) -> None:
        windows = joined.get(len(batches))
        if windows is None:
            windows = joined[len(batches)] = [
                (torch.cat([b[0] for b in window]), torch.cat([b[1] for b in window]))
                for window in (batches[i : i + size] for i in range(0, len(batches), size))
            ]
        for batch in windows:
            stepper.step(batch, loss_fn, split=SAMPLES)

    return run
