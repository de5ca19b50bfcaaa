# looks like INS401: the rate is written into the groups before each update
# expect: nothing
import math

import torch

warmup, total, peak = 100, 5000, 6e-4


def get_lr(it):
    if it < warmup:
        return peak * (it + 1) / warmup
    return 0.5 * peak * (1 + math.cos(math.pi * (it - warmup) / (total - warmup)))


optimizer = torch.optim.AdamW(model.parameters(), lr=peak)
for it in range(total):
    for group in optimizer.param_groups:
        group["lr"] = get_lr(it)
    for micro in range(4):
        x, y = get_batch("train")
        loss = torch.nn.functional.cross_entropy(model(x), y) / 4
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
