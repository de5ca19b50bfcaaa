import torch


class Runner:
    def __init__(self, net, loss_fn, window):
        self.net, self.loss_fn, self.window = net, loss_fn, window
        self.optim = torch.optim.Adam(net.parameters())
        self.seen = 0

    def feed(self, batch, target):
        self.seen += 1
        ready = self.seen % self.window == 0
        self.optim.zero_grad()  # expect: INS102
        loss = torch.nn.functional.l1_loss(self.net(batch), target) / self.window
        loss.backward()
        if ready:
            self.optim.step()

    def run(self, loader, epochs):
        for _ in range(epochs):
            for batch, target in loader:
                self.feed(batch, target)
