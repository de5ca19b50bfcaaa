# looks like INS104: each turn steps one member and clears it; the next one still has its gradients
# expect: nothing
import sys

import torch
from torch import nn

size = max(2, len(sys.argv))
members, optimizers = [], []
for _ in range(size):
    members.append(nn.Linear(8, 8))
for k in range(size):
    optimizers.append(torch.optim.Adam(members[k].parameters(), lr=1e-3))

for epoch in range(5):
    for x, y in loader:
        total = 0
        for k in range(size):
            total = total + nn.functional.cross_entropy(members[k](x), y)
        total.backward()
        for k in range(size):
            optimizers[k].step()
            members[k].zero_grad()
