# looks like INS502: the encoder is frozen where the module begins
# expect: nothing
import torch
from torch import nn

encoder = nn.Linear(8, 8)
head = nn.Linear(8, 1)
for p in encoder.parameters():
    p.requires_grad = False
optimizer = torch.optim.SGD(head.parameters(), lr=0.1)


def train(loader):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(head(encoder(x)), y).backward()
        optimizer.step()
