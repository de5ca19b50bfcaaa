# looks like INS603: only the last micro-batch of a window is synchronised
# expect: nothing
from contextlib import nullcontext

import torch
from torch.nn.parallel import DistributedDataParallel as DDP

model = DDP(Net().cuda())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for update in range(10_000):
    optimizer.zero_grad()
    for micro in range(8):
        x, y = next(stream)
        with model.no_sync() if micro < 7 else nullcontext():
            loss = torch.nn.functional.cross_entropy(model(x), y) / 8
            loss.backward()
    optimizer.step()
