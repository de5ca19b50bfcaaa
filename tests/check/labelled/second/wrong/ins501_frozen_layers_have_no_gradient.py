import torch
import torchvision
from torch import nn

model = torchvision.models.resnet50(weights="DEFAULT")
for p in model.parameters():
    p.requires_grad = False
model.fc = nn.Linear(2048, 7)
optimizer = torch.optim.Adam(model.fc.parameters(), lr=1e-3)
ce = nn.CrossEntropyLoss()

for epoch in range(15):
    for img, y in loader:
        optimizer.zero_grad()
        loss = ce(model(img), y)
        loss.backward()
        for p in model.parameters():
            p.grad.clamp_(-1.0, 1.0)  # expect: INS501
        optimizer.step()
