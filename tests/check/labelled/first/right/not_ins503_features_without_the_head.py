# looks like INS503: the head is taken out to look at features, and put back
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


def features(model, loader):
    head = model.head
    model.head = nn.Identity()
    model.eval()
    with torch.no_grad():
        found = [model(x) for x, _ in loader]
    model.head = head
    model.train()
    return found


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    features(model, loader)
