"""Loss scaling for fp16: when the scale grows and shrinks, as plain numbers.

The user's `torch.amp.GradScaler` stays the owner: its state is read when a loop starts and written
back after every change, through its own `state_dict()`, so it can be saved, loaded and used without
instep at any time. What instep decides itself is when: once per micro-batch in which a window
closed, however many optimizers closed one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# The scale lives in a float32 tensor; torch does not grow it past that type's range.
LARGEST_FLOAT32 = 3.4028234663852886e38
SMALLEST_SCALE = 2.0**-126


@dataclass(frozen=True, slots=True)
class LossScale:
    """The policy of `GradScaler`: grow after enough good updates, back off after a bad one.

    >>> start = LossScale(scale=4.0, growth_interval=2)
    >>> start.after(overflowed=False).after(overflowed=False).scale
    8.0
    >>> start.after(overflowed=False).after(overflowed=True).scale
    2.0
    """

    scale: float = 65536.0
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000
    good_updates: int = 0

    def after(self, *, overflowed: bool) -> LossScale:
        """Return the scale that follows an update, or a skipped one."""
        if overflowed:
            # torch lets the scale reach 0, from which it never comes back; we stop before.
            backed_off = max(self.scale * self.backoff_factor, SMALLEST_SCALE)
            return replace(self, scale=backed_off, good_updates=0)
        good = self.good_updates + 1
        if good < self.growth_interval:
            return replace(self, good_updates=good)
        grown = self.scale * self.growth_factor
        fits = math.isfinite(grown) and grown <= LARGEST_FLOAT32
        return replace(self, scale=grown if fits else self.scale, good_updates=0)


class Scaling:
    """The loss scale of a stepper, shared by all its optimizers."""

    def __init__(self, scaler: torch.amp.GradScaler | None) -> None:
        self._scaler = scaler if scaler is not None and scaler.is_enabled() else None
        self._policy = LossScale(scale=1.0)
        self._outcomes: list[bool] = []
        self.scale = 1.0
        """What losses are multiplied by now; 1.0 without a scaler."""
        self.read()

    @property
    def enabled(self) -> bool:
        """Whether losses are scaled at all."""
        return self._scaler is not None

    @property
    def pending(self) -> bool:
        """Whether a window closed since the last `update`."""
        return bool(self._outcomes)

    def outcomes(self) -> list[bool]:
        """Return whether each window that closed since the last `update` overflowed."""
        return list(self._outcomes)

    def read(self) -> None:
        """Take over the scaler's state, which its owner may have changed (syncs on a device)."""
        if self._scaler is None:
            return
        state = self._scaler.state_dict()
        self._policy = LossScale(
            scale=state["scale"],
            growth_factor=state["growth_factor"],
            backoff_factor=state["backoff_factor"],
            growth_interval=state["growth_interval"],
            good_updates=state["_growth_tracker"],
        )
        self.scale = self._policy.scale

    def record(self, *, overflowed: bool) -> None:
        """Note how a closed window came out; `update` takes all notes together."""
        if self._scaler is not None:
            self._outcomes.append(overflowed)

    def update(self) -> float:
        """Grow or back off once for all that was recorded; return new scale / old scale."""
        if self._scaler is None or not self._outcomes:
            return 1.0
        old = self.scale
        self._policy = self._policy.after(overflowed=any(self._outcomes))
        self.scale = self._policy.scale
        self._outcomes.clear()
        self.write()
        return self.scale / old

    def write(self) -> None:
        """Hand the state back to the scaler."""
        if self._scaler is not None:
            self._scaler.load_state_dict(self.state_dict())

    def state_dict(self) -> dict[str, float]:
        """Return the state in GradScaler's own form; empty without a scaler."""
        if self._scaler is None:
            return {}
        policy = self._policy
        return {
            "scale": policy.scale,
            "growth_factor": policy.growth_factor,
            "backoff_factor": policy.backoff_factor,
            "growth_interval": policy.growth_interval,
            "_growth_tracker": policy.good_updates,
        }

    def load_state_dict(self, state: dict[str, float], outcomes: list[bool]) -> None:
        """Take over a saved state and hand it to the scaler."""
        if self._scaler is not None and state:
            self._scaler.load_state_dict(state)
            self._outcomes = list(outcomes)
            self.read()
