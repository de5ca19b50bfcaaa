"""What is refused before anything changes: losses and counts, one call at a time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from instep.engine.arithmetic import LARGEST_COUNT
from instep.errors import ItemsError, LossError

if TYPE_CHECKING:
    from torch import Tensor


def on_host(tensor: Tensor) -> bool:
    """Whether reading this tensor costs no device sync."""
    return tensor.is_cpu


def scalar_loss(loss: object) -> Tensor:
    """Return the loss as a 0-dim tensor, or say why it is none."""
    if isinstance(loss, torch.Tensor) and loss.requires_grad and loss.is_floating_point():
        if loss.dim() == 0 and not loss.is_meta:
            return loss
        if loss.numel() == 1 and not loss.is_meta:
            return loss.reshape(())
    raise _no_loss(loss)


def _no_loss(loss: object) -> LossError:
    if not isinstance(loss, torch.Tensor):
        return LossError(
            f"the loss is a {type(loss).__name__}, not a tensor.",
            why="only a tensor with a graph behind it can be backpropagated.",
            fix="pass what the loss function returned, before .item() or float().",
            more="loss",
        )
    if loss.numel() != 1:
        return LossError(
            f"the loss has shape {tuple(loss.shape)}, not one element.",
            why="a window adds up scalar losses, each the mean over its items.",
            fix="reduce it first: loss.mean() with items=loss.numel(), or loss.sum() with "
            'reduction="sum".',
            more="loss",
        )
    if not loss.requires_grad:
        return LossError(
            "the loss has no graph behind it.",
            why="it was detached, computed under no_grad, or no parameter that requires a gradient "
            "took part in it.",
            fix="compute it from the model's output with gradients on; check requires_grad.",
            more="loss",
        )
    if loss.is_meta:
        return LossError(
            "the loss is on the meta device.",
            why="tensors there have shapes and no values.",
            fix="move the model to a real device with to_empty() or to(), and initialise it.",
            more="loss",
        )
    return LossError(
        f"the loss is of type {loss.dtype}.",
        why="a gradient of a complex loss is not defined without choosing a real part.",
        fix="return a real number: loss.abs() or loss.real.",
        more="loss",
    )


def count_of(items: object) -> float | Tensor:
    """Return a count as a number, or as a 0-dim tensor if reading it would sync a device."""
    if type(items) is int and 0 <= items <= LARGEST_COUNT:
        return items
    if isinstance(items, torch.Tensor):
        if items.numel() != 1:
            raise ItemsError(
                f"items has shape {tuple(items.shape)}, not one element.",
                why="items is how many samples, tokens or pixels the loss is a mean of.",
                fix="sum the mask: items=(targets != -100).sum().",
                more="items",
            )
        if items.is_meta:
            raise ItemsError(
                "items is on the meta device.",
                why="tensors there have shapes and no values.",
                fix="count on the device where the targets are.",
                more="items",
            )
        if items.requires_grad:
            raise ItemsError(
                "items requires a gradient.",
                why="it is computed from the model's output or parameters, as a loss or a metric "
                "is; a count of samples, tokens or pixels is not.",
                fix="pass what the loss is a mean over: items=(targets != -100).sum(). For a "
                "count that comes from the model, items=count.detach().",
                more="items",
            )
        if not on_host(items):
            return items.detach().reshape(())
        items = items.item()
    return host_count(items)


def host_count(items: object) -> float:
    """Return a count that is already on the host as a checked number."""
    try:
        number = float(items)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or isinstance(items, str | bytes | bytearray | bool):
        raise ItemsError(
            f"items is {items!r}.",
            why="items is how many samples, tokens or pixels the loss is a mean of; without it the "
            "parts of a window cannot be weighed.",
            fix="pass a number or a 0-dim tensor: items=len(batch), items=(targets != -100).sum().",
            more="items",
        )
    if not 0 <= number <= LARGEST_COUNT:
        raise ItemsError(
            f"items is {items!r}.",
            why="a count is zero or more, and less than 2**53.",
            fix="count what the loss averages over; a weight belongs in weight=.",
            more="items",
        )
    return number


def host_weight(weight: object) -> float:
    """Return a term's weight as a finite number."""
    try:
        number = float(weight)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ItemsError(
            f"weight is {weight!r}.",
            why="a weight multiplies a term of the loss, so it must be a finite number; a weight "
            "that is learned belongs inside the loss.",
            fix="pass weight=0.5, or multiply the loss itself.",
            more="terms",
        )
    return number
