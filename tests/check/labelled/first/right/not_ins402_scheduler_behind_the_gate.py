# looks like INS402: scheduler, step and clearing share the gate
# expect: nothing
import torch
from torch.optim.lr_scheduler import OneCycleLR

ACC = 8
opt = torch.optim.SGD(net.parameters(), lr=0.1)
one_cycle = OneCycleLR(opt, max_lr=1.0, total_steps=1000)
opt.zero_grad()
for i in range(8000):
    x, y = next(batches)
    loss = torch.nn.functional.cross_entropy(net(x), y) / ACC
    loss.backward()
    if (i + 1) % ACC == 0:
        opt.step()
        one_cycle.step()
        opt.zero_grad()
