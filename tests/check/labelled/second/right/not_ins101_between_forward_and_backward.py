# trap 1: the clearing stands between forward and backward
# expect: nothing
import torch
from torch import nn

net = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10))
net(torch.zeros(1, 1, 28, 28))
optimizer = torch.optim.Adadelta(net.parameters(), lr=1.0)

for epoch in range(14):
    for data, target in train_loader:
        output = net(data)
        loss = nn.functional.cross_entropy(output, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
