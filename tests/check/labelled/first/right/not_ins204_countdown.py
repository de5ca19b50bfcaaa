# looks like INS204: counted down to zero and started again at n
# expect: nothing
import torch


class Countdown:
    def __init__(self, net, n):
        self.net, self.n, self.left = net, n, n
        self.opt = torch.optim.SGD(net.parameters(), lr=0.1)

    def feed(self, x, y):
        loss = torch.nn.functional.cross_entropy(self.net(x), y)
        (loss / self.n).backward()
        self.left -= 1
        if self.left == 0:
            self.opt.step()
            self.opt.zero_grad()
            self.left = self.n


def train(net, loader, epochs):
    countdown = Countdown(net, 4)
    for _ in range(epochs):
        for x, y in loader:
            countdown.feed(x, y)
