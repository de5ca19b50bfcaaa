"""How do I train two networks in turns, each with its own optimizer and its own number of batches?

Give both optimizers to one stepper. Here the discriminator updates after every micro-batch and the
generator after every second one. A backward reaches only the parameters of its own optimizer, so
nothing has to be frozen, and the generator's backward leaves no gradients in the discriminator.

Before:                                          After:

    opt_d.zero_grad()                                (deleted)
    d_loss.backward()                                window.backward(d_loss, ..., optimizer="d")
    opt_d.step()                                     window.close("d")
    g_loss.backward()  # also dirties D              window.backward(g_loss, ..., optimizer="g")
    if (i + 1) % 2 == 0:                             size={"d": 1, "g": 2}
        opt_g.step(); opt_g.zero_grad()              (deleted)
"""

from __future__ import annotations

from collections import Counter

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Adam
from torch.utils.data import DataLoader, TensorDataset

import instep

EPOCHS = 10
CENTRE = torch.tensor([2.0, -1.0])


def network(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 32), nn.LeakyReLU(0.2), nn.Linear(32, outputs))


def judged(logits: Tensor, *, real: bool) -> Tensor:
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, float(real)))


def main() -> None:
    torch.set_num_threads(1)  # the work is tiny: more threads only wait for each other
    torch.manual_seed(0)
    generator, discriminator = network(4, 2), network(2, 1)
    optimizers = {
        "d": Adam(discriminator.parameters(), lr=5e-3, betas=(0.5, 0.9)),
        "g": Adam(generator.parameters(), lr=5e-3, betas=(0.5, 0.9)),
    }
    stepper = instep.Stepper([generator, discriminator], optimizers)
    # 1,050 points in batches of 32: 33 micro-batches, so the generator's last window has only one.
    points = TensorDataset(CENTRE + 0.3 * torch.randn(1050, 2))
    loader = DataLoader(points, batch_size=32, shuffle=True)
    noise = torch.randn(500, 4)
    before = _distance(generator(noise))
    made: Counter[str] = Counter()
    closed_by_hand = 0
    for _ in range(EPOCHS):
        for window in stepper.windows(loader, size={"d": 1, "g": 2}):
            for (real,) in window:
                fake = generator(torch.randn(len(real), 4))
                d_loss = judged(discriminator(real), real=True)
                d_loss = d_loss + judged(discriminator(fake.detach()), real=False)
                window.backward(d_loss, items=len(real), optimizer="d")
                if window.due("d"):
                    window.close("d")  # now, so that the generator meets the updated discriminator
                    closed_by_hand += 1
                g_loss = judged(discriminator(fake), real=True)
                window.backward(g_loss, items=len(real), optimizer="g")
            made.update(update.optimizer for update in window.updates)
    print(f"micro-batches: {EPOCHS * len(loader)}")
    print(f"updates of d: {made['d']} ({closed_by_hand} of them before g's turn)")
    print(f"updates of g: {made['g']}")
    print(
        f"distance of fakes from the real centre: {before:.2f} → {_distance(generator(noise)):.2f}"
    )


def _distance(fake: Tensor) -> float:
    return float((fake.detach().mean(0) - CENTRE).norm())


if __name__ == "__main__":
    main()
