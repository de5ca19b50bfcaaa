import torch
from torch.optim.lr_scheduler import OneCycleLR


class Trainer:
    def __init__(self, model, total_updates, accumulate=2):
        self.model = model
        self.accumulate = accumulate
        self.seen = 0
        self.opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        self.sched = OneCycleLR(self.opt, max_lr=0.4, total_steps=total_updates)

    def training_step(self, x, y):
        loss = torch.nn.functional.cross_entropy(self.model(x), y)
        (loss / self.accumulate).backward()
        self.seen += 1
        if self.seen % self.accumulate == 0:
            self.opt.step()
            self.opt.zero_grad()
        self._after_batch()
        return loss.item()

    def _after_batch(self):
        self.sched.step()  # expect: INS402

    def fit(self, loader, epochs):
        for _ in range(epochs):
            for x, y in loader:
                self.training_step(x, y)
