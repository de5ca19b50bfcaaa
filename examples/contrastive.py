"""How do I accumulate gradients for a contrastive loss?

Not piece by piece: each piece would be compared with itself only, and the negatives of all other
pieces are missing. Encode in pieces, and compute the loss on all representations, with a learned
temperature in it. `instep.verify` tells one from the other.

Before:                                             After:

    for a, b in pieces:                                 stepper.step(
        loss = nce(model(a), model(b)) / n                  (a, b), nce_on_all,
        loss.backward()  # few negatives                    encode=lambda p: (model(p[0]), ...),
    optimizer.step()                                        split=8)
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD

import instep

SAMPLES, SPLIT = 60, 8
Pair = tuple[Tensor, Tensor]


class Encoder(nn.Module):
    """Two views of a sample come out near each other, as near as the temperature asks for."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
        self.temperature = nn.Parameter(torch.tensor(2.0))
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        """Return one direction per sample."""
        return F.normalize(self.layers(x), dim=1)

    def both(self, pair: Pair) -> Pair:
        """Encode both views."""
        return self(pair[0]), self(pair[1])

    def nce(self, z: Pair) -> Tensor:
        """Compare every sample of one view with every sample of the other."""
        scores = z[0] @ z[1].T * self.temperature.exp()
        return F.cross_entropy(scores, torch.arange(len(scores)))


def parameters_of(model: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def main() -> None:
    torch.manual_seed(0)
    x = torch.randn(SAMPLES, 16).double()
    pair = (x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x))

    model = Encoder()
    stepper = instep.Stepper(model, SGD(model.parameters(), lr=0.5))
    found = instep.verify(stepper, pair, lambda piece: model.nce(model.both(piece)), split=SPLIT)
    print(f"piece by piece, gradient error: {found.worst:.1e} ({found.cause and found.cause.name})")
    for _ in range(20):
        update = stepper.step(pair, lambda z, _: model.nce(z), encode=model.both, split=SPLIT)
    print(f"in two passes of {-(-SAMPLES // SPLIT)} pieces, loss: {update.loss:.6f}")

    whole = Encoder()
    optimizer = SGD(whole.parameters(), lr=0.5)
    for _ in range(20):
        optimizer.zero_grad()
        loss = whole.nce(whole.both(pair))
        loss.backward()
        optimizer.step()
    print(f"as one batch, loss: {float(loss.detach()):.6f}")
    distance = float((parameters_of(model) - parameters_of(whole)).norm())
    print(f"distance after 20 updates, two passes: {distance:.1e}")


if __name__ == "__main__":
    main()
