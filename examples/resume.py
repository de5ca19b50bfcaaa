"""How do I stop in the middle of an accumulation window and go on as if nothing had happened?

Save the stepper beside the model, the optimizer and the scheduler. It holds the gradients gathered
so far, what they are a mean of, the random states and the position in the data. Load it last: it
puts the random states back.
"""

from __future__ import annotations

import io
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import LinearLR
from torch.utils.data import DataLoader, TensorDataset

import instep

EPOCHS = 2


class Training:
    """Everything one run has, built anew for each."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(8, 32), nn.Dropout(0.2), nn.ReLU(), nn.Linear(32, 3))
        self.optimizer = AdamW(self.model.parameters(), lr=1e-2)
        self.scheduler = LinearLR(self.optimizer, total_iters=10)
        self.stepper = instep.Stepper(self.model, self.optimizer, scheduler=self.scheduler)
        self.epoch = self.micro_batches = 0

    def state(self) -> dict[str, Any]:
        """Return all that has to be saved."""
        parts = ("model", "optimizer", "scheduler", "stepper")
        states = {name: getattr(self, name).state_dict() for name in parts}
        return {**states, "epoch": self.epoch}

    def load(self, state: dict[str, Any]) -> None:
        """Go back to a saved place."""
        for name in ("model", "optimizer", "scheduler", "stepper"):  # the stepper last
            getattr(self, name).load_state_dict(state[name])
        self.epoch = state["epoch"]

    def run(self, loader: DataLoader[Any], *, stop_after: int | None = None) -> bytes | None:
        """Train to the end, or return a checkpoint after so many micro-batches."""
        while self.epoch < EPOCHS:
            for window in self.stepper.windows(loader, size=4):
                for x, y in window:
                    window.backward(F.cross_entropy(self.model(x), y), items=len(x))
                    self.micro_batches += 1
                    if self.micro_batches == stop_after:
                        file = io.BytesIO()
                        torch.save(self.state(), file)
                        return file.getvalue()
            self.epoch += 1
        return None


def shuffled_loader() -> DataLoader[Any]:
    x = torch.arange(800.0).reshape(100, 8).sin()
    return DataLoader(TensorDataset(x, x.argmax(1) % 3), batch_size=8, shuffle=True)


def tensors(state: Any) -> list[Tensor]:
    """Return every tensor of a nested state, in order."""
    if isinstance(state, Tensor):
        return [state]
    children = state.values() if isinstance(state, dict) else state
    return [
        t for child in children if isinstance(child, dict | list | Tensor) for t in tensors(child)
    ]


def main() -> None:
    straight = Training(seed=0)
    straight.run(shuffled_loader())

    interrupted = Training(seed=0)
    checkpoint = interrupted.run(
        shuffled_loader(), stop_after=19
    )  # epoch 2, window 2, batch 2 of 4
    assert checkpoint is not None
    print(
        f"stopped in epoch {interrupted.epoch + 1} after {interrupted.micro_batches} micro-batches"
    )

    resumed = Training(
        seed=999
    )  # other weights, other random numbers: nothing is left of the first
    resumed.load(torch.load(io.BytesIO(checkpoint), weights_only=True))
    resumed.run(shuffled_loader())
    print(
        f"resumed for the other {resumed.micro_batches} of {straight.micro_batches} micro-batches"
    )

    ours, theirs = (
        [*tensors(run.model.state_dict()), *tensors(run.optimizer.state_dict())]
        for run in (resumed, straight)
    )
    same = all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
    print(f"tensors compared, model and optimizer: {len(ours)}")
    print(f"bit-identical: {same}")


if __name__ == "__main__":
    main()
