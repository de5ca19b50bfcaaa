# looks like INS401: the scheduler is told where it is, so its place in the loop does not matter
# expect: nothing
import torch
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts

opt = torch.optim.SGD(net.parameters(), lr=0.1)
restarts = CosineAnnealingWarmRestarts(opt, T_0=10)
for epoch in range(100):
    for i, (x, y) in enumerate(loader):
        restarts.step(epoch + i / len(loader))
        opt.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
