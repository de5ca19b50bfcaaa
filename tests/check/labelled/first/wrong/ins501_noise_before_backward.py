import torch


class NoisyTrainer:
    def __init__(self, net, sigma):
        self.net, self.sigma = net, sigma
        self.opt = torch.optim.SGD(net.parameters(), lr=0.05)

    def perturb(self):
        for p in self.net.parameters():
            p.grad.add_(torch.randn_like(p) * self.sigma)  # expect: INS501

    def train_step(self, x, y):
        self.opt.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(self.net(x), y)
        self.perturb()
        loss.backward()
        self.opt.step()

    def fit(self, loader):
        for x, y in loader:
            self.train_step(x, y)
