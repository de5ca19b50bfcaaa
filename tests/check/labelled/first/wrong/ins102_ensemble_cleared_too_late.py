import torch
from torch import nn

members, optimizers = [], []
for _ in range(size):
    member = nn.Linear(8, 8)
    members.append(member)
    optimizers.append(torch.optim.SGD(member.parameters(), lr=0.05))

for x, y in loader:
    loss = sum(nn.functional.cross_entropy(member(x), y) for member in members)
    loss.backward()
    for k in range(size):
        optimizers[k].zero_grad()  # expect: INS102
    for k in range(size):
        optimizers[k].step()
