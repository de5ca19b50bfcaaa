# looks like INS602: a running statistic is filled with zeros, the gradients are dropped
# expect: nothing
import torch

counts = torch.zeros(10)
opt = torch.optim.Adam(net.parameters())
for epoch in range(5):
    counts.zero_()
    for x, y in loader:
        opt.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        counts += torch.bincount(y, minlength=10)
