# looks like INS503: the new layer joins the optimizer as a group
# expect: nothing
import torch
from torch import nn

net = nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
net[2] = nn.Linear(10, 5)
opt.add_param_group({"params": net[2].parameters()})
for x, y in loader:
    opt.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    opt.step()
