# looks like INS604: what has a mode was taken from a model in eval mode, and is never in another
# expect: nothing
import torch
from torch import nn


class Probe(nn.Module):
    def __init__(self):
        super().__init__()
        trained = Encoder()
        trained.load_state_dict(torch.load("encoder.pt"))
        trained.eval()
        self.unused = nn.BatchNorm1d(64)
        self.fc = trained.fc
        self.bn = trained.bn
        self.act = nn.GELU()
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.act(self.bn(self.fc(x))))


probe = Probe().to("cuda")
optimizer = torch.optim.Adam(probe.head.parameters(), lr=1e-4)
for epoch in range(20):
    for x, y in train_loader:
        loss = nn.functional.cross_entropy(probe(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    probe.eval()
    with torch.no_grad():
        print(sum((probe(x).argmax(1) == y).sum() for x, y in valid_loader))
