# looks like INS503: what is put in has no parameters, or those that the model had already
# expect: nothing
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.act = nn.ReLU()
        self.head = nn.Linear(8, 8)

    def forward(self, x):
        return self.head(self.act(self.body(x)))


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model.act = nn.GELU()
model.head = nn.Sequential(nn.Dropout(0.1), model.head)

for x, y in loader:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
