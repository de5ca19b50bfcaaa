import torch
import torch.nn.functional as F
from torch import nn


def build(width):
    return nn.Sequential(nn.Linear(32, width), nn.ReLU(), nn.Linear(width, 4))


def forward_backward(net, batch, device):
    x, y = (t.to(device) for t in batch)
    loss = F.cross_entropy(net(x), y)
    loss.backward()  # expect-one: INS101
    return loss.item()


def apply_update(opt):
    opt.step()  # expect-one: INS101


def train_one_epoch(net, loader, opt, device):
    total = 0.0
    for batch in loader:
        total += forward_backward(net, batch, device)
        apply_update(opt)
    return total / len(loader)


def main(loader, device="cuda"):
    net = build(128).to(device)
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(20):
        print(epoch, train_one_epoch(net, loader, opt, device))
