import torch
from torch import nn, optim
from torch.optim import lr_scheduler

model = resnet18(num_classes=100).cuda()
optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
scheduler = lr_scheduler.MultiStepLR(optimizer, milestones=[60, 120, 160], gamma=0.2)
criterion = nn.CrossEntropyLoss()

for epoch in range(200):
    scheduler.step()  # expect: INS401
    model.train()
    for images, labels in train_loader:
        optimizer.zero_grad()
        loss = criterion(model(images.cuda()), labels.cuda())
        loss.backward()
        optimizer.step()
