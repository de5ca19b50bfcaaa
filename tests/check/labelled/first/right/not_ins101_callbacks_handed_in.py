# looks like INS101: whoever uses this hands in what clears
# expect: nothing
from torch import nn


class Loop:
    def __init__(self, net, optimizer):
        self.net, self.optimizer = net, optimizer
        self.wanted = {"batch begins": [], "batch ends": []}

    def when(self, moment, what):
        self.wanted[moment].append(what)

    def tell(self, moment):
        for what in self.wanted[moment]:
            what(self)

    def run(self, loader):
        for x, y in loader:
            self.tell("batch begins")
            nn.functional.cross_entropy(self.net(x), y).backward()
            self.optimizer.step()
            self.tell("batch ends")
