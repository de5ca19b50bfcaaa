# trap 7: summed token losses, and the gradients are divided once by all tokens of the window
# expect: nothing
import torch
import torch.nn.functional as F


def train(model, feed, updates, n=8):
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for _ in range(updates):
        opt.zero_grad()
        tokens = 0
        for _ in range(n):
            x, y = next(feed)
            logits = model(x).flatten(0, 1)
            loss = F.cross_entropy(logits, y.flatten(), ignore_index=-100, reduction="sum")
            loss.backward()
            tokens += (y != -100).sum()
        for p in model.parameters():
            if p.grad is not None:
                p.grad.mul_(1.0 / tokens)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
