# looks like INS202: what is left is rescaled and stepped after the loop
# expect: nothing
import torch


class Trainer:
    def __init__(self, model, every):
        self.model, self.every, self.pending = model, every, 0
        self.optimizer = torch.optim.Adam(model.parameters())

    def close(self):
        for p in self.model.parameters():
            if p.grad is not None:
                p.grad.div_(self.pending)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.pending = 0

    def epoch(self, loader):
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(self.model(x), y)
            loss.backward()
            self.pending += 1
            if self.pending == self.every:
                self.close()
        if self.pending:
            self.close()
