# looks like INS101: somebody else is given the whole object before each backward
# expect: nothing
import torch
from torch import nn


class Loop:
    def __init__(self, net, assistant):
        self.net = net
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        self.assistant = assistant

    def run(self, loader):
        for x, y in loader:
            self.assistant.prepare(self)
            nn.functional.cross_entropy(self.net(x), y).backward()
            self.optimizer.step()
