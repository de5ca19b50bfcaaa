# trap 6: three methods, one of them of a mixin, make one update
# expect: nothing
import torch


class Clearing:
    def before_batch(self):
        self.optim.zero_grad()


class Regression(Clearing):
    def __init__(self, net):
        self.net = net
        self.optim = torch.optim.SGD(net.parameters(), lr=0.01)

    def backward_pass(self, x, y):
        loss = torch.nn.functional.mse_loss(self.net(x), y)
        loss.backward()
        return loss.item()

    def after_batch(self):
        self.optim.step()

    def fit(self, loader):
        for x, y in loader:
            self.before_batch()
            self.backward_pass(x, y)
            self.after_batch()
