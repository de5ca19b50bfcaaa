import torch
import torch.nn.functional as F


class ShardedTrainer:
    def __init__(self, net, shards=4):
        self.net, self.shards = net, shards
        self.opt = torch.optim.Adam(net.parameters(), lr=1e-3)

    def step(self, x, y):
        self.opt.zero_grad()
        for xs, ys in zip(x.chunk(self.shards), y.chunk(self.shards)):
            loss = F.cross_entropy(self.net(xs), ys) * (len(xs) / len(x))
            loss.backward()
            torch.nn.utils.clip_grad_value_(self.net.parameters(), 0.5)  # expect: INS301
        self.opt.step()

    def fit(self, loader):
        for x, y in loader:
            self.step(x, y)
