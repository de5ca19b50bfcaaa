import torch
from torch import nn
from torchvision import models

model = models.resnet18(weights=models.ResNet18_Weights.DEFAULT)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)  # expect-one: INS503
model.fc = nn.Linear(model.fc.in_features, 5)  # expect-one: INS503
model = model.cuda()

for epoch in range(25):
    for inputs, labels in train_loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs.cuda()), labels.cuda())
        loss.backward()
        optimizer.step()
