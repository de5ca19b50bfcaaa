# looks like INS402: a warm-up per update and a decay per epoch
# expect: nothing
import torch
from torch.optim.lr_scheduler import ExponentialLR, LinearLR

optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
decay = ExponentialLR(optimizer, gamma=0.9)
for epoch in range(26):
    warmup = LinearLR(optimizer, 0.001, total_iters=500) if epoch == 0 else None
    for images, targets in data_loader:
        losses = model(images, targets)
        loss = sum(losses.values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if warmup is not None:
            warmup.step()
    decay.step()
