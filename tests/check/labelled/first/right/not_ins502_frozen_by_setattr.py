# looks like INS502: the filter is fixed, in a way that is not followed
# expect: nothing
import torch
from torch import nn

edges = nn.Linear(8, 8, bias=False)
[setattr(each, "requires_grad", False) for each in edges.parameters()]
even = nn.BatchNorm1d(8, affine=False)
net = nn.Linear(8, 8)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
for x, _ in loader:
    optimizer.zero_grad()
    nn.functional.l1_loss(even(edges(net(x))), x).backward()
    optimizer.step()
