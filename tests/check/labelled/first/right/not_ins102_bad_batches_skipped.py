# trap 12: a batch that is not finite is cleared away, and the loop goes on
# expect: nothing
import math

import torch

for step, (x, y) in enumerate(loader):
    loss = torch.nn.functional.mse_loss(net(x), y)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    if not math.isfinite(norm):
        optimizer.zero_grad()
        continue
    optimizer.step()
    optimizer.zero_grad()
