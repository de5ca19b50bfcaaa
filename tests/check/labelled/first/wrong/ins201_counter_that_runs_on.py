import torch


class Finetuner:
    def __init__(self, model, every):
        self.model, self.every = model, every
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
        self.pending = 0

    def train_step(self, x, y):
        loss = torch.nn.functional.cross_entropy(self.model(x), y)  # expect-one: INS201
        loss.backward()  # expect-one: INS201
        self.pending += 1
        if self.pending == self.every:
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.pending = 0

    def fit(self, loader, epochs):
        for _ in range(epochs):
            for x, y in loader:
                self.train_step(x, y)
