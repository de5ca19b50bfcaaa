import torch
from torch import nn

net = Net().cuda()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9)

for epoch in range(2):
    running_loss = 0.0
    for i, (inputs, labels) in enumerate(trainloader, 0):
        optimizer.zero_grad()
        loss = criterion(net(inputs.cuda()), labels.cuda())
        loss.backward()
        optimizer.step()
        running_loss += loss  # expect: INS601
    print(f"[{epoch + 1}] loss: {running_loss / len(trainloader):.3f}")
