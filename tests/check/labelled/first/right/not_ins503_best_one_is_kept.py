# looks like INS503: the best copy takes the place of the model when all epochs are over
# expect: nothing
import copy

import torch
from torch import nn


class Pipeline:
    def __init__(self, epochs):
        self.net = nn.Linear(8, 3)
        self.epochs = epochs
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def train(self, x, y):
        best, lowest = None, float("inf")
        for epoch in range(self.epochs):
            loss = nn.functional.cross_entropy(self.net(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if loss.item() < lowest:
                best, lowest = copy.deepcopy(self.net), loss.item()
        self.net = best
