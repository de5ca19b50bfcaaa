# trap 5: a wrapper sets the rate and steps the optimizer it holds
# expect: nothing
import torch


class WarmupOptimizer:
    def __init__(self, inner, width, warmup):
        self.inner, self.width, self.warmup, self.count = inner, width, warmup, 0

    def zero_grad(self):
        self.inner.zero_grad()

    def step_and_update_lr(self):
        self.count += 1
        rate = self.width**-0.5 * min(self.count**-0.5, self.count * self.warmup**-1.5)
        for group in self.inner.param_groups:
            group["lr"] = rate
        self.inner.step()


def train(model, loader):
    optimizer = WarmupOptimizer(torch.optim.Adam(model.parameters()), 512, 4000)
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step_and_update_lr()
