# looks like INS502: the features that are compared freeze themselves when they are made
# expect: nothing
import torch
from torch import nn


class Features(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        for parameter in self.parameters():
            parameter.requires_grad = False

    def forward(self, x):
        return self.layer(x)


features = Features()
restore = nn.Linear(8, 8)
optimizer = torch.optim.Adam(restore.parameters(), lr=1e-4)
for damaged, _ in loader:
    optimizer.zero_grad()
    nn.functional.l1_loss(features(restore(damaged)), features(damaged)).backward()
    optimizer.step()
