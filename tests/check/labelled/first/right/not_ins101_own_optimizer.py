# trap 5: the step of an optimizer of our own clears
# expect: nothing
import torch


class Clearing(torch.optim.AdamW):
    def step(self, closure=None):
        loss = super().step(closure)
        self.zero_grad()
        return loss


optimizer = Clearing(model.parameters(), lr=1e-3)
for x, y in loader:
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
