import torch


class Engine:
    def __init__(self, net, clip, accumulate):
        self.net = net
        self.clip = clip
        self.accumulate = accumulate
        self.count = 0
        self.opt = torch.optim.SGD(net.parameters(), lr=0.1)

    def backward(self, loss):
        loss = loss / self.accumulate
        loss.backward()
        if self.clip:
            torch.nn.utils.clip_grad_value_(self.net.parameters(), self.clip)  # expect: INS301

    def maybe_step(self):
        self.count += 1
        if self.count % self.accumulate == 0:
            self.opt.step()
            self.opt.zero_grad()


def fit(net, loader, epochs):
    engine = Engine(net, clip=0.1, accumulate=4)
    criterion = torch.nn.HuberLoss()
    for _ in range(epochs):
        for x, y in loader:
            engine.backward(criterion(net(x), y))
            engine.maybe_step()
