# looks like INS104: every member has an optimizer of its own, and one backward fills all of them
# expect: nothing
import torch
from torch import nn

members = [nn.Linear(8, 8) for _ in range(3)]
optimizers = [torch.optim.SGD(member.parameters(), lr=0.05) for member in members]

for x, y in loader:
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss = sum(nn.functional.cross_entropy(member(x), y) for member in members)
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
