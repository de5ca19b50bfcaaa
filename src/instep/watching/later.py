"""Numbers that are still on their way from a device: nobody waits for them."""

from __future__ import annotations

from typing import Any

import torch


class Later:
    """A few numbers of a tensor, on the host as soon as the device has come to them.

    >>> value = Later(torch.tensor([1.0, 2.0]))
    >>> value.is_here, value.numbers
    (True, [1.0, 2.0])
    """

    __slots__ = ("_event", "_value")

    def __init__(self, value: Any) -> None:
        self._event: Any = None
        if isinstance(value, torch.Tensor):
            value = value.detach()
            if value.device.type != "cpu":
                device = value.device
                value = value.to("cpu", non_blocking=True)
                # Until the device has passed this, what is in the host's memory means nothing.
                self._event = torch.Event(device)
                self._event.record()
        self._value = value

    @property
    def is_here(self) -> bool:
        """Whether the numbers have arrived."""
        return self._event is None or bool(self._event.query())

    @property
    def numbers(self) -> list[float]:
        """The numbers, flat."""
        if isinstance(self._value, torch.Tensor):
            return [float(number) for number in self._value.reshape(-1).tolist()]
        return [float(self._value)]


def at_hand(value: Any) -> float | None:
    """Return a number, or that of a tensor with one, if it takes no waiting for a device.

    >>> at_hand(2), at_hand(torch.tensor([0.5])), at_hand(torch.ones((), device="meta"))
    (2.0, 0.5, None)
    """
    if isinstance(value, torch.Tensor):
        is_here = value.is_cpu and (not value.ndim or value.numel() == 1)
        return float(value) if is_here else None
    return None if value is None else float(value)


def sliced(tensor: torch.Tensor, most: int) -> torch.Tensor:
    """Return at most about `most` elements, from all over a tensor.

    >>> sliced(torch.arange(10), 4)
    tensor([0, 3, 6, 9])
    """
    flat = tensor.detach().flatten()
    return flat[:: max(1, -(-flat.numel() // most))]
