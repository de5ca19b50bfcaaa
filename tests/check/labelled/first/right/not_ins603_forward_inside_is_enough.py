# trap 19: the flag is read in forward, so the backward may stand outside
# expect: nothing
import torch
from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, stream, updates, n=4):
    ddp = DDP(net)
    opt = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for _ in range(updates):
        opt.zero_grad()
        for _ in range(n - 1):
            x, y = next(stream)
            with ddp.no_sync():
                out = ddp(x)
            (torch.nn.functional.mse_loss(out, y) / n).backward()
        x, y = next(stream)
        (torch.nn.functional.mse_loss(ddp(x), y) / n).backward()
        opt.step()
