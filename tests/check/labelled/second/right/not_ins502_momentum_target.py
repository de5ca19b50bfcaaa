# looks like INS502: the target network is a moving average and has no optimizer
# expect: nothing
import copy

import torch
import torch.nn.functional as F


class BYOL:
    def __init__(self, online, predictor, m=0.996):
        self.online, self.predictor, self.m = online, predictor, m
        self.target = copy.deepcopy(online).requires_grad_(False)
        self.opt = torch.optim.SGD(
            [{"params": online.parameters()}, {"params": predictor.parameters(), "lr": 1.0}], lr=0.1
        )

    def step(self, a, b):
        with torch.no_grad():
            goal = F.normalize(self.target(b), dim=-1)
        guess = F.normalize(self.predictor(self.online(a)), dim=-1)
        loss = (2 - 2 * (guess * goal).sum(-1)).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        for p, q in zip(self.online.parameters(), self.target.parameters()):
            q.data.mul_(self.m).add_(p.data, alpha=1 - self.m)
        return loss.item()


def train(byol, loader):
    for (a, b), _ in loader:
        byol.step(a, b)
