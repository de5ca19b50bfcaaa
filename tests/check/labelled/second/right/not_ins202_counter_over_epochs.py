# looks like INS202: the counter runs on over the epochs, so every window is full
# expect: nothing
import torch


class Job:
    def __init__(self, net, accum=4):
        self.net = net
        self.accum = accum
        self.micro = 0
        self.opt = torch.optim.Adam(net.parameters(), lr=1e-4)

    def fit(self, loader, epochs):
        for _ in range(epochs):
            for x, y in loader:
                loss = torch.nn.functional.mse_loss(self.net(x), y)
                (loss / self.accum).backward()
                self.micro += 1
                if self.micro % self.accum == 0:
                    self.opt.step()
                    self.opt.zero_grad()
