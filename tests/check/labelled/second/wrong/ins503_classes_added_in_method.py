import torch
from torch import nn


class Incremental:
    def __init__(self, features):
        self.net = nn.Sequential(nn.Linear(features, 100), nn.ReLU())
        self.head = nn.Linear(100, 10)
        self.opt = torch.optim.SGD(  # expect-one: INS503
            [*self.net.parameters(), *self.head.parameters()], lr=0.05
        )

    def grow(self, classes):
        self.head = nn.Linear(100, classes)  # expect-one: INS503

    def run(self, loader):
        for x, y in loader:
            self.opt.zero_grad()
            loss = nn.functional.cross_entropy(self.head(self.net(x)), y)
            loss.backward()
            self.opt.step()


def main(first, second):
    learner = Incremental(64)
    learner.run(first)
    learner.grow(20)
    learner.run(second)
