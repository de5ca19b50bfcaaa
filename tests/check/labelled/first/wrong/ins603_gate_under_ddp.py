import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

model = DDP(build_model().cuda(), device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer.zero_grad()
for i in range(60_000):
    x, y = next(batches)
    loss = F.mse_loss(model(x), y) / 6  # expect-one: INS603
    loss.backward()  # expect-one: INS603
    if (i + 1) % 6 == 0:
        optimizer.step()
        optimizer.zero_grad()
