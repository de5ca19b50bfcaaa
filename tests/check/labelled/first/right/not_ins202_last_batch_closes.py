# looks like INS202: the last batch closes its window, and a short window has its own divisor
# expect: nothing
import torch


def train_epoch(model, optimizer, loader, accum):
    batches = len(loader)
    short = batches % accum
    optimizer.zero_grad()
    for i, (x, y) in enumerate(loader):
        in_short_window = i >= batches - short
        size = short if in_short_window else accum
        loss = torch.nn.functional.cross_entropy(model(x), y) / size
        loss.backward()
        if (i + 1) % accum == 0 or i + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()
