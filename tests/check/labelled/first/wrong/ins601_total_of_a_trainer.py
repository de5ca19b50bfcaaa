import torch


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        self.train_loss = 0

    def batch(self, x, y):
        loss = torch.nn.functional.mse_loss(self.model(x), y)
        self.train_loss += loss  # expect: INS601
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def end_epoch(self, batches):
        print(self.train_loss / batches)
        self.train_loss = 0


def main(model, loader):
    trainer = Trainer(model)
    for _ in range(10):
        for x, y in loader:
            trainer.batch(x, y)
        trainer.end_epoch(len(loader))
