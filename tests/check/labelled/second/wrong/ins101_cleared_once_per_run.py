import torch
from torch import nn, optim


class Trainer:
    def __init__(self, model, loader, lr=3e-4):
        self.model = model
        self.loader = loader
        self.loss_fn = nn.MSELoss()
        self.optimizer = optim.AdamW(self.model.parameters(), lr=lr)

    def fit(self, epochs):
        self.model.train()
        self.optimizer.zero_grad()  # expect-one: INS101
        for epoch in range(epochs):
            mean_loss = self.run_epoch()
            print(f"epoch {epoch}: {mean_loss:.4f}")

    def run_epoch(self):
        seen, total = 0, 0.0
        for features, target in self.loader:
            prediction = self.model(features)
            loss = self.loss_fn(prediction, target)
            loss.backward()  # expect-one: INS101
            self.optimizer.step()  # expect-one: INS101
            total += loss.item() * len(features)
            seen += len(features)
        return total / seen
