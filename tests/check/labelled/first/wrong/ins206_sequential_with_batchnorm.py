import torch
from torch import nn

net = nn.Sequential(  # expect-one: INS206
    nn.Conv2d(3, 32, 3, bias=False),
    nn.BatchNorm2d(32),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(32, 10),
)
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
net.train()
source = iter(endless_loader)
for update in range(5000):
    opt.zero_grad()
    for _ in range(8):
        x, y = next(source)
        loss = nn.functional.cross_entropy(net(x), y) / 8  # expect-one: INS206
        loss.backward()  # expect-one: INS206
    opt.step()
