import torch
from torch import nn

members = [nn.Linear(8, 8) for _ in range(size)]
optimizers = [torch.optim.SGD(member.parameters(), lr=0.05) for member in members]

for x, y in loader:
    loss = 0
    for k in range(size):
        loss = loss + nn.functional.cross_entropy(members[k](x), y)
    loss.backward()  # expect-one: INS101
    for k in range(size):
        optimizers[k].step()  # expect-one: INS101
