# looks like INS202: the last, short window is flushed, and divided by its own size
# expect: nothing
import torch


def train(model, loader, loss_fn, epochs, n=4):
    opt = torch.optim.Adam(model.parameters())
    batches = len(loader)
    full = batches - batches % n
    for _ in range(epochs):
        opt.zero_grad()
        for i, (x, y) in enumerate(loader):
            size = n if i < full else batches - full
            (loss_fn(model(x), y) / size).backward()
            if (i + 1) % n == 0 or (i + 1) == batches:
                opt.step()
                opt.zero_grad()
