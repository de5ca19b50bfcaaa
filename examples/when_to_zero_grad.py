"""When should I call `optimizer.zero_grad()`?

Once per update, anywhere between a step and the first backward after it. PyTorch adds into
`.grad`: without it every update is made with the gradients of all batches so far. In windows the
question does not come up: a window begins with clean gradients and ends with one update.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD

import instep

Batches = list[tuple[Tensor, Tensor]]
Loop = Callable[[nn.Module, SGD, Batches], None]


def forgotten(model: nn.Module, optimizer: SGD, batches: Batches) -> None:
    """Never clear: it runs, it may even converge, and it is wrong."""
    for x, y in batches:
        F.mse_loss(model(x), y).backward()  # instep: ignore[missing-zero-grad] shown to be wrong
        optimizer.step()


def plain(model: nn.Module, optimizer: SGD, batches: Batches) -> None:
    """One update per batch, cleared before each backward."""
    for x, y in batches:
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()


def windowed(model: nn.Module, optimizer: SGD, batches: Batches, size: int = 1) -> None:
    """Do the same in windows: zero_grad() and step() are gone, and `size` may be more than one."""
    stepper = instep.Stepper(model, optimizer)
    for window in stepper.windows(batches, size=size):
        for x, y in window:
            window.backward(F.mse_loss(model(x), y), items=len(x))


def plain_joined(model: nn.Module, optimizer: SGD, batches: Batches) -> None:
    """Do what a window of 4 stands for: the 4 batches as one."""
    for start in range(0, len(batches), 4):
        xs, ys = zip(*batches[start : start + 4], strict=True)
        plain(model, optimizer, [(torch.cat(xs), torch.cat(ys))])


def main() -> None:
    torch.manual_seed(0)
    batches = [(torch.randn(n, 3).double(), torch.randn(n, 1).double()) for n in (8, 8, 8, 8, 8, 5)]
    start = nn.Linear(3, 1).double().state_dict()
    loops: dict[str, Loop] = {
        "forgotten": forgotten,
        "plain": plain,
        "window of 1": windowed,
        "joined": plain_joined,
        "window of 4": lambda m, o, b: windowed(m, o, b, size=4),
    }
    ends = {}
    for name, loop in loops.items():
        model = nn.Linear(3, 1).double()
        model.load_state_dict(start)
        loop(model, SGD(model.parameters(), lr=0.1), batches)
        ends[name] = nn.utils.parameters_to_vector(model.parameters()).detach()

    def distance(one: str, other: str) -> float:
        return float((ends[one] - ends[other]).norm() / ends[other].norm())

    print("Distance of the trained parameters, relative:")
    print(f"  zero_grad forgotten, to the plain loop:   {distance('forgotten', 'plain'):.1e}")
    print(f"  windows of 1 batch, to the plain loop:    {distance('window of 1', 'plain'):.1e}")
    print(f"  windows of 4, to the 4 batches as one:    {distance('window of 4', 'joined'):.1e}")


if __name__ == "__main__":
    main()
