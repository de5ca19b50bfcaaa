# looks like INS104: the slice leaves out the optimizer that has stepped already
# expect: nothing
import torch
from torch import nn

heads = [nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)]
optimizers = [torch.optim.SGD(head.parameters(), lr=0.1) for head in heads]

for x, y in loader:
    loss = 0
    for k in range(3):
        loss = loss + nn.functional.cross_entropy(heads[k](x), y)
    loss.backward()
    optimizers[0].step()
    for optimizer in optimizers[1:]:
        optimizer.step()
    for optimizer in optimizers:
        optimizer.zero_grad()
