# looks like INS503: moving or casting a model keeps its parameters
# expect: nothing
import torch
from torch import nn


def main(loader, device):
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    model = model.to(device)
    model = model.to(torch.bfloat16)
    for epoch in range(5):
        for x, y in loader:
            optimizer.zero_grad()
            logits = model(x.to(device, torch.bfloat16))
            loss = nn.functional.cross_entropy(logits.float(), y.to(device))
            loss.backward()
            optimizer.step()
