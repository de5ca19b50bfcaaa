# looks like INS604: a model that trains itself stays in eval mode, and has nothing that notices
# expect: nothing
import torch
from torch import nn
from torch.utils.data import DataLoader


class Fitting(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Conv1d(width, 16, kernel_size=1)
        self.last = nn.Linear(16, 1)

    def forward(self, x):
        return self.last(torch.relu(self.first(x)).flatten(1))

    def fit(self, data, held_out):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        for _ in range(10):
            for x, y in DataLoader(data, batch_size=8):
                optimizer.zero_grad()
                nn.MSELoss()(self(x), y).backward()
                optimizer.step()
            print(self.score(held_out))

    def score(self, data):
        self.eval()
        with torch.no_grad():
            return sum(nn.MSELoss()(self(x), y).item() for x, y in DataLoader(data, batch_size=64))
