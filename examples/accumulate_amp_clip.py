"""How do I put gradient accumulation, mixed precision, clipping and a scheduler into one loop?

Their order matters (accumulate, unscale, clip, step, schedule, clear) and their units too: clipping
and scheduling count updates, not micro-batches. The stepper takes them as settings and keeps both.

Before, in every loop:                                  After:

    with torch.autocast("cpu", torch.bfloat16):             precision="bf16"
    (loss / 4).backward()                                   window.backward(loss, items=len(x))
    if (i + 1) % 4 == 0:                                    size=4
        clip_grad_norm_(model.parameters(), 0.3)            clip_norm=0.3
        optimizer.step()                                    (deleted)
        scheduler.step()                                    scheduler=scheduler
        optimizer.zero_grad()                               (deleted)
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import LinearLR
from torch.utils.data import DataLoader, TensorDataset

import instep

EPOCHS = 5
CLIP = 0.3


def main() -> None:
    torch.set_num_threads(1)  # the work is tiny: more threads only wait for each other
    torch.manual_seed(0)
    x = torch.randn(300, 20)
    y = (x[:, 0] + x[:, 1] > 0).long()
    # 19 micro-batches of 16 samples, the last of 12: 5 windows, the last of 3 micro-batches.
    loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.Linear(64, 2))
    optimizer = AdamW(model.parameters(), lr=1e-2)
    scheduler = LinearLR(optimizer, start_factor=1.0, end_factor=0.1, total_iters=25)
    stepper = instep.Stepper(
        model, optimizer, scheduler=scheduler, clip_norm=CLIP, precision="bf16"
    )
    updates = clipped = 0
    for epoch in range(EPOCHS):
        for window in stepper.windows(loader, size=4):
            for inputs, labels in window:
                logits = model(inputs)  # autocast is on here, and off in backward and step
                loss = F.cross_entropy(logits.float(), labels)
                window.backward(loss, items=len(inputs))
            updates += 1
            clipped += window.grad_norm > CLIP
        if epoch in (0, EPOCHS - 1):
            print(
                f"epoch {epoch + 1}: last window's loss {window.loss:.3f}, gradient norm "
                f"{window.grad_norm:.3f}, learning rate {optimizer.param_groups[0]['lr']:.4f}"
            )
    print(f"logits were {logits.dtype}, weights are {next(model.parameters()).dtype}")
    print(f"micro-batches: {EPOCHS * len(loader)}, updates: {updates}, clipped: {clipped}")
    print(f"scheduler counted: {scheduler.last_epoch}")


if __name__ == "__main__":
    main()
