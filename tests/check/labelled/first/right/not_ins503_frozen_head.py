# looks like INS503: the new layer is a random projection, which nobody means to train
# expect: nothing
import torch
from torch import nn

model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
model.head = nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

projection = nn.Linear(8, 8)
for parameter in projection.parameters():
    parameter.requires_grad_(False)
model.head = projection

for x, y in loader:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
