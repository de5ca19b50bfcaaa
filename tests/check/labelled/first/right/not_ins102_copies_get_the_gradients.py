# looks like INS102: the clear is of copies in full precision, whose gradients are written after it
# expect: nothing
import torch
from torch import nn


def groups(names, parameters):
    decays = [0.0 if "bias" in name else 1e-4 for name in names]
    return [{"params": [p], "weight_decay": decay} for decay, p in zip(decays, parameters)]


class Halves:
    def __init__(self, net):
        self.net = net
        self.names = [name for name, _ in net.named_parameters()]
        self.halves = [p for _, p in net.named_parameters()]
        self.copies = [p.clone().detach() for p in self.halves]
        for p in self.copies:
            p.requires_grad = True
            p.grad = p.data.new_zeros(p.size())
        self.optimizer = torch.optim.SGD(groups(self.names, self.copies), lr=0.1)

    def train(self, loader):
        for x, y in loader:
            for half in self.halves:
                half.grad = None
            (nn.functional.cross_entropy(self.net(x), y) * 128).backward()
            self.optimizer.zero_grad()
            for copy, half in zip(self.copies, self.halves):
                copy.grad = half.grad.clone()
                copy.grad /= 128
            self.optimizer.step()
            for copy, half in zip(self.copies, self.halves):
                half.data.copy_(copy.data)
