import torch
from torch.optim.lr_scheduler import LambdaLR


class TwoTowers:
    def __init__(self, user, item):
        self.user, self.item = user, item
        self.optims = [torch.optim.Adam(tower.parameters(), lr=1e-3) for tower in (user, item)]
        self.scheds = [LambdaLR(o, lambda s: min(1.0, (s + 1) / 1000)) for o in self.optims]

    def train_step(self, u, i, rating):
        score = (self.user(u) * self.item(i)).sum(-1)
        loss = torch.nn.functional.mse_loss(score, rating)
        for o in self.optims:
            o.zero_grad()
        loss.backward()
        for s in self.scheds:
            s.step()  # expect: INS401
        for o in self.optims:
            o.step()

    def fit(self, loader):
        for u, i, rating in loader:
            self.train_step(u, i, rating)
