import torch


class Trainer:
    def __init__(self, model, lr):
        self.model = model
        self.opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)

    def train_batch(self, x, y):
        self.opt.zero_grad()
        loss = torch.nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        self.opt.step()  # expect-one: INS104
        acc = (self.model(x).argmax(1) == y).float().mean()
        self.opt.step()  # expect-one: INS104
        return loss.item(), acc.item()

    def fit(self, loader, epochs):
        for _ in range(epochs):
            for x, y in loader:
                self.train_batch(x, y)
