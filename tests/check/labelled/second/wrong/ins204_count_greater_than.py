import torch


class Accumulator:
    def __init__(self, model, every=5):
        self.model = model
        self.every = every
        self.pending = 0
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def backward(self, loss):
        (loss / self.every).backward()
        self.pending += 1
        if self.pending > self.every:  # expect-one: INS204
            self.optimizer.step()  # expect-one: INS204
            self.optimizer.zero_grad()
            self.pending = 0


def train(model, loader, epochs):
    acc = Accumulator(model)
    for _ in range(epochs):
        for x, y in loader:
            acc.backward(torch.nn.functional.l1_loss(model(x), y))
