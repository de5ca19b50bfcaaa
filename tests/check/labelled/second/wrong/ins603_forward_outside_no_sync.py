import contextlib

import torch
from torch.nn.parallel import DistributedDataParallel


def train(net, feed, updates, n, rank):
    ddp = DistributedDataParallel(net.to(rank), device_ids=[rank])
    opt = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for _ in range(updates):
        opt.zero_grad()
        for micro in range(n):
            x, y = next(feed)
            loss = torch.nn.functional.mse_loss(ddp(x), y) / n  # expect-one: INS603
            quiet = ddp.no_sync() if micro < n - 1 else contextlib.nullcontext()
            with quiet:  # expect-one: INS603
                loss.backward()  # expect-one: INS603
        opt.step()
