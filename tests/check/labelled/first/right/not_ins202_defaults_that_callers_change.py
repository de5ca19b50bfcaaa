# looks like INS202: one epoch is but a default, and the counter runs on over epochs
# expect: nothing
import torch


class Fit:
    def __init__(self, **settings):
        self.settings = self.defaults()
        self.change(**settings)

    @staticmethod
    def defaults():
        return {"epochs": 1, "every": 2, "rate": 1e-4}

    def change(self, **settings):
        for name, value in settings.items():
            if name in self.settings:
                self.settings[name] = value

    def train(self, model, loader, **settings):
        self.change(**settings)
        chosen = self.settings
        optimizer = torch.optim.Adam(model.parameters(), lr=chosen["rate"])
        optimizer.zero_grad()
        done = 1
        for _ in range(chosen["epochs"]):
            for x, y in loader:
                loss = torch.nn.functional.mse_loss(model(x), y) / chosen["every"]
                loss.backward()
                if done % chosen["every"] == 0:
                    optimizer.step()
                    optimizer.zero_grad()
                done += 1
