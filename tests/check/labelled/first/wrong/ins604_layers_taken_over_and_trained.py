import torch
from torch import nn


class Probe(nn.Module):
    def __init__(self):
        super().__init__()
        trained = Encoder()
        trained.eval()
        self.fc = trained.fc
        self.bn = trained.bn
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.bn(self.fc(x)))


probe = Probe()
optimizer = torch.optim.Adam(probe.parameters(), lr=1e-4)
probe.train()
for epoch in range(20):
    for x, y in train_loader:
        loss = nn.functional.cross_entropy(probe(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    probe.eval()  # expect: INS604
    with torch.no_grad():
        print(sum((probe(x).argmax(1) == y).sum() for x, y in valid_loader))
