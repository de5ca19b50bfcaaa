import torch
from torch import nn


class Continual:
    def __init__(self, trunk, classes):
        self.trunk = trunk
        self.last = nn.Linear(512, classes)
        params = [*self.trunk.parameters(), *self.last.parameters()]
        self.optim = torch.optim.SGD(params, lr=0.02)  # expect-one: INS503

    def grow(self, classes):
        self.last = nn.Linear(512, classes)  # expect-one: INS503

    def learn(self, tasks):
        for loader, classes in tasks:
            self.grow(classes)  # expect-one: INS503
            for x, y in loader:
                self.optim.zero_grad()
                loss = nn.functional.cross_entropy(self.last(self.trunk(x)), y)
                loss.backward()
                self.optim.step()
