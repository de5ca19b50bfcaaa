import torch
from torch.nn.utils import clip_grad_norm_


def run(model, optimizer, batches):
    optimizer.zero_grad()
    for i in range(12_000):
        x, y = next(batches)
        loss = torch.nn.functional.mse_loss(model(x), y) / 6
        loss.backward()
        clip_grad_norm_(model.parameters(), 1.0)  # expect: INS301
        if (i + 1) % 6 != 0:
            continue
        optimizer.step()
        optimizer.zero_grad()
