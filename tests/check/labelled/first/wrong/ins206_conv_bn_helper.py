import torch
from torch import nn


def conv_bn(inp, out):
    return nn.Sequential(nn.Conv1d(inp, out, 5), nn.BatchNorm1d(out), nn.GELU())


class KeywordSpotter(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(conv_bn(40, 64), conv_bn(64, 64))
        self.out = nn.Linear(64, 35)

    def forward(self, x):
        return self.out(self.features(x).mean(-1))


def train(batches, updates, micro=4):
    spotter = KeywordSpotter()  # expect-one: INS206
    optimizer = torch.optim.Adam(spotter.parameters())
    for _ in range(updates):
        optimizer.zero_grad()
        for _ in range(micro):
            x, y = next(batches)
            loss = nn.functional.cross_entropy(spotter(x), y)  # expect-one: INS206
            (loss / micro).backward()  # expect-one: INS206
        optimizer.step()
