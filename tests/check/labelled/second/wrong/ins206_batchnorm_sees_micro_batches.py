import torch
import torch.nn.functional as F
from torch import nn


class Small(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.conv = nn.Conv2d(3, 32, 3, padding=1)
        self.bn = nn.BatchNorm2d(32)
        self.fc = nn.Linear(32, classes)

    def forward(self, x):
        x = F.relu(self.bn(self.conv(x)))
        return self.fc(x.mean((2, 3)))


model = Small(10)  # expect-one: INS206
model.train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for update in range(1000):
    optimizer.zero_grad()
    for _ in range(16):
        x, y = next(batches)  # two images each
        loss = F.cross_entropy(model(x), y) / 16  # expect-one: INS206
        loss.backward()  # expect-one: INS206
    optimizer.step()
