# looks like INS503: the new layer is a random projection, which nobody means to train
# expect: nothing
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.head = nn.Linear(8, 8)

    def forward(self, x):
        return self.head(self.body(x))


def train(model, optimizer, loader):
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train(model, optimizer, loader)

projection = nn.Linear(8, 8)
for parameter in projection.parameters():
    parameter.requires_grad_(False)
model.head = projection
train(model, optimizer, loader)
