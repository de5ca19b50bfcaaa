# looks like INS601: the total of the trainer begins anew with every window
# expect: nothing
import torch


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        self.seen = 0
        self.window_loss = 0

    def batch(self, x, y):
        self.seen += 1
        loss = torch.nn.functional.mse_loss(self.model(x), y)
        self.window_loss += loss
        (loss / 4).backward()
        if self.seen % 4 == 0:
            self.optimizer.step()
            self.optimizer.zero_grad()
            print(self.window_loss / 4)
            self.window_loss = 0


def main(model, loader):
    trainer = Trainer(model)
    for _ in range(10):
        for x, y in loader:
            trainer.batch(x, y)
