# looks like INS402: the scheduler stands in the micro loop, behind the gate
# expect: nothing
import torch


class Loop:
    def __init__(self, model, n):
        self.model = model
        self.n = n
        self.calls = 0
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 10_000)

    def micro_step(self, x, y):
        loss = torch.nn.functional.mse_loss(self.model(x), y) / self.n
        loss.backward()
        self.calls += 1
        if self.calls % self.n:
            return
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad()

    def run(self, loader, epochs):
        for _ in range(epochs):
            for x, y in loader:
                self.micro_step(x, y)
