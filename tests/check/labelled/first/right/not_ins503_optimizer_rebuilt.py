# looks like INS503: the head is replaced, and then a new optimizer is built
# expect: nothing
import torch
from torch import nn


class Lifelong:
    def __init__(self, trunk):
        self.trunk = trunk

    def new_task(self, classes):
        self.head = nn.Linear(256, classes)
        params = [*self.trunk.parameters(), *self.head.parameters()]
        self.opt = torch.optim.SGD(params, lr=0.01)

    def learn(self, tasks):
        for loader, classes in tasks:
            self.new_task(classes)
            for x, y in loader:
                self.opt.zero_grad()
                loss = nn.functional.cross_entropy(self.head(self.trunk(x)), y)
                loss.backward()
                self.opt.step()
