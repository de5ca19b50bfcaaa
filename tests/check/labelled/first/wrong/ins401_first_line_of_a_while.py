import torch
from torch.optim.lr_scheduler import MultiStepLR


def train(net, loader, patience):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    milestones = MultiStepLR(optimizer, [60, 90], gamma=0.1)
    best, bad, epoch = float("inf"), 0, 0
    while bad < patience:
        milestones.step()  # expect: INS401
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        bad = 0 if total < best else bad + 1
        best = min(best, total)
        epoch += 1
