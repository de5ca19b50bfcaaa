import torch
from torch import nn
from torchvision import models

model = models.resnet18()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # expect-one: INS503
model.fc = nn.Sequential(model.fc, nn.ReLU(), nn.Linear(1000, 5))  # expect-one: INS503

for x, y in loader:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
