import torch
from torch import nn

members = [nn.Linear(8, 8) for _ in range(4)]
optimizers = [torch.optim.SGD(member.parameters(), lr=0.05) for member in members]

for x, y in loader:
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss = sum(nn.functional.cross_entropy(member(x), y) for member in members)
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
    print(loss.item())
    for optimizer in optimizers:
        optimizer.step()  # expect: INS104
