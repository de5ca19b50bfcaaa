# trap 19: forward inside no_sync, backward outside: DDP reads the flag in forward
# expect: nothing
import torch
from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, feed, updates, n, rank):
    model = DDP(net.to(rank), device_ids=[rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(updates):
        optimizer.zero_grad()
        for micro in range(n):
            x, y = next(feed)
            if micro < n - 1:
                with model.no_sync():
                    loss = torch.nn.functional.mse_loss(model(x), y)
            else:
                loss = torch.nn.functional.mse_loss(model(x), y)
            (loss / n).backward()
        optimizer.step()
