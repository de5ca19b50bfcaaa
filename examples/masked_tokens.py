"""How do I average a masked loss over tokens when every micro-batch has a different number of them?

Declare the tokens that count. Where the mean is written by hand, hand over the sum instead
(`reduction="sum"`) and let the window divide: a micro-batch with nothing but padding then adds 0,
where its own mean is 0 / 0.

Before:                                                 After:

    loss = (nll * mask).sum() / mask.sum()                  loss = (nll * mask).sum()
    (loss / n).backward()                                   window.backward(
                                                                loss, items=mask.sum(),
                                                                reduction="sum")
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD

import instep

WORDS, LENGTH = 12, 10
Batch = tuple[Tensor, Tensor, Tensor]


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Embedding(WORDS, 16), nn.Linear(16, WORDS)).double()


def masked_batches() -> list[Batch]:
    """Make tokens, targets and a mask; the third micro-batch is all padding."""
    torch.manual_seed(0)
    batches = []
    for lengths in ([10, 9], [2, 1], [0, 0], [7, 3]):
        tokens = torch.randint(WORDS, (len(lengths), LENGTH))
        mask = torch.arange(LENGTH) < torch.tensor(lengths)[:, None]
        batches.append((tokens, (tokens + 1) % WORDS, mask))
    return batches


def nll_of(model: nn.Module, tokens: Tensor, targets: Tensor) -> Tensor:
    """Return the loss of every token, padding included."""
    return F.cross_entropy(model(tokens).transpose(1, 2), targets, reduction="none")


def main() -> None:
    batches = masked_batches()
    model = network()
    stepper = instep.Stepper(model, SGD(model.parameters(), lr=1.0))
    for window in stepper.windows(batches, size=len(batches)):
        for tokens, targets, mask in window:
            loss = (nll_of(model, tokens, targets) * mask).sum()
            window.backward(loss, items=mask.sum(), reduction="sum")
    print(f"tokens: {[int(mask.sum()) for _, _, mask in batches]}, counted: {window.items:.0f}")
    print(f"loss per token: {window.loss:.4f}, skipped: {window.skipped}")

    whole = network()
    tokens, targets, mask = (torch.cat(part) for part in zip(*batches, strict=True))
    loss = nll_of(whole, tokens, targets)[mask].mean()
    loss.backward()
    SGD(whole.parameters(), lr=1.0).step()
    print(f"loss per token, one batch: {float(loss.detach()):.4f}")
    ours, theirs = (nn.utils.parameters_to_vector(m.parameters()).detach() for m in (model, whole))
    print(f"distance from one batch: {float((ours - theirs).norm()):.1e}")

    means = [(nll_of(whole, t, y) * m).sum() / m.sum() for t, y, m in batches]
    print(f"mean of the micro-batches' own means: {float(torch.stack(means).mean().detach()):.4f}")


if __name__ == "__main__":
    main()
