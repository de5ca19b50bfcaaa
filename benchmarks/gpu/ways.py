"""The ways to train a window that are compared: plain loops, peers, and ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

import instep

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

LIMIT = 1.0
Loss = "Callable[[nn.Module, Tensor], Tensor]"


@dataclass(frozen=True, slots=True)
class Way:
    """One way: whether the model is compiled, and what makes a window of a batch."""

    name: str
    make: Callable[[nn.Module, Any], Callable[[Tensor], object]]
    compiled: bool = False
    fused: bool = False


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    """Return what every way updates with: torch's own fused AdamW."""
    return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


def plain(model: nn.Module, loss_of: Any) -> Callable[[Tensor], object]:
    """Return the loop that everybody writes, with the loss divided."""
    optimizer = optimizer_of(model)
    inner = getattr(model, "_orig_mod", model)

    def window(batch: Tensor) -> None:
        for piece in batch.split(1):
            with torch.autocast("cuda", torch.bfloat16):
                loss = loss_of(model, piece) / len(batch)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(inner.parameters(), LIMIT)
        optimizer.step()
        optimizer.zero_grad()

    return window


def accelerate(model: nn.Module, loss_of: Any) -> Callable[[Tensor], object]:
    """Return the loop of Accelerate's guide on gradient accumulation."""
    from accelerate import Accelerator

    steps = 8
    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=steps)
    ready, optimizer = accelerator.prepare(model, optimizer_of(model))

    def window(batch: Tensor) -> None:
        for piece in batch.split(1):
            with accelerator.accumulate(ready):
                accelerator.backward(loss_of(ready, piece))
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(ready.parameters(), LIMIT)
                optimizer.step()
                optimizer.zero_grad()

    return window


def fabric(model: nn.Module, loss_of: Any) -> Callable[[Tensor], object]:
    """Return the loop of Lightning Fabric's guide on gradient accumulation."""
    from lightning_fabric import Fabric

    fabric = Fabric(accelerator="cuda", devices=1, precision="bf16-mixed")
    ready, optimizer = fabric.setup(model, optimizer_of(model))

    def window(batch: Tensor) -> None:
        pieces = batch.split(1)
        for index, piece in enumerate(pieces):
            with fabric.no_backward_sync(ready, enabled=index < len(pieces) - 1):
                fabric.backward(loss_of(ready, piece) / len(pieces))
        fabric.clip_gradients(ready, optimizer, max_norm=LIMIT)
        optimizer.step()
        optimizer.zero_grad()

    return window


def stepper(
    *, split: int = 1, **options: Any
) -> Callable[[nn.Module, Any], Callable[[Tensor], object]]:
    """Return our function style with these options, so many samples at a time."""

    def make(model: nn.Module, loss_of: Any) -> Callable[[Tensor], object]:
        inner = getattr(model, "_orig_mod", model)
        ours = instep.Stepper(
            inner, optimizer_of(inner), clip_norm=LIMIT, precision="bf16", **options
        )
        return lambda batch: ours.step(batch, lambda piece: loss_of(model, piece), split=split)

    return make


WAYS = (
    Way("plain loop", plain),
    Way("plain loop, compiled", plain, compiled=True),
    Way("Accelerate", accelerate),
    Way("Fabric", fabric),
    Way("Stepper", stepper()),
    Way("Stepper(fused)", stepper(fused=True)),
    Way("Stepper(fused, capture)", stepper(fused=True, capture=True)),
    Way("Stepper(fused, capture), fuse", stepper(fused=True, capture=True), fused=True),
    Way("Stepper(fused, capture), compiled", stepper(fused=True, capture=True), compiled=True),
    Way(
        "Stepper(fused, capture), fuse, compiled",
        stepper(fused=True, capture=True),
        compiled=True,
        fused=True,
    ),
)


def abreast(width: int) -> Way:
    """Return our fastest way with so many micro-batches side by side."""
    name = f"Stepper(fused, capture={width}), fuse, compiled"
    return Way(name, stepper(fused=True, capture=width), compiled=True, fused=True)


def unsplit(samples: int) -> Way:
    """Return our fastest way with nothing split: what the device takes for the batch at once.

    It is no window of micro-batches, and needs their memory together; whatever is made of
    micro-batches has as much to compute.
    """
    return _in_pieces("all at once", samples)


def larger(samples: int) -> Way:
    """Return our fastest way with so many of the samples at a time: the update is the same, and it
    is for whom the memory that the plain loop needs for one sample is enough for more of them.
    """
    return _in_pieces(f"{samples} at a time", samples)


def _in_pieces(name: str, samples: int) -> Way:
    return Way(
        f"Stepper(fused, capture), fuse, compiled, {name}",
        stepper(fused=True, capture=True, split=samples),
        compiled=True,
        fused=True,
    )
