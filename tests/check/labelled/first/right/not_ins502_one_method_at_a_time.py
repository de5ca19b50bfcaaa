# looks like INS502: of two losses with parameters one is used, and the optimizer has that one
# expect: nothing
import torch
from torch import nn


class Training:
    def __init__(self, net, method):
        self.net, self.method = net, method

    def run(self, loader):
        domains = nn.Linear(8, 2) if self.method == "domains" else None
        twins = nn.Linear(8, 8) if self.method == "twins" else None
        trained = list(self.net.parameters())
        if domains is not None:
            trained += list(domains.parameters())
        elif twins is not None:
            trained += list(twins.parameters())
        optimizer = torch.optim.SGD(trained, lr=0.1)
        for x, y in loader:
            optimizer.zero_grad()
            features = self.net(x)
            if twins is not None:
                features = twins(features)
            nn.functional.cross_entropy(features, y).backward()
            optimizer.step()
