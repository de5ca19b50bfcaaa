# trap 6: the step helper lives apart and returns a number, so nothing is kept
# expect: nothing
import torch


class StepHelper:
    def __init__(self, model):
        self.model = model
        self.opt = torch.optim.Adam(model.parameters())

    def __call__(self, x, y):
        self.opt.zero_grad()
        loss = torch.nn.functional.mse_loss(self.model(x), y)
        loss.backward()
        self.opt.step()
        return {"loss": loss.item(), "n": len(x)}


def train(model, loader, epochs):
    step = StepHelper(model)
    for _ in range(epochs):
        total, seen = 0.0, 0
        for x, y in loader:
            out = step(x, y)
            total += out["loss"] * out["n"]
            seen += out["n"]
        print(total / seen)
