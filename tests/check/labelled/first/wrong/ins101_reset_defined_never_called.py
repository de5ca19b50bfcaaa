import torch


class MultiTask:
    def __init__(self, trunk, heads):
        self.trunk, self.heads = trunk, heads
        self.optims = {
            "trunk": torch.optim.AdamW(trunk.parameters(), lr=1e-4),
            "heads": torch.optim.AdamW(heads.parameters(), lr=1e-3),
        }

    def reset_optims(self):
        for optim in self.optims.values():
            optim.zero_grad()

    def fit(self, loader, epochs):
        for _ in range(epochs):
            for x, targets in loader:
                outputs = self.heads(self.trunk(x))
                loss = torch.nn.functional.mse_loss(outputs, targets)
                loss.backward()  # expect-one: INS101
                for optim in self.optims.values():
                    optim.step()  # expect-one: INS101
