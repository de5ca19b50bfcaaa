import torch


class Trainer:
    def __init__(self, model, device="cuda"):
        self.model = model.to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.scaler = torch.amp.GradScaler(device)

    def _backward(self, loss):
        self.optimizer.zero_grad()
        loss.backward()  # expect: INS306

    def _step(self):
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def fit(self, loader):
        for x, y in loader:
            with torch.autocast("cuda", dtype=torch.float16):
                loss = torch.nn.functional.cross_entropy(self.model(x), y)
            self._backward(loss)
            self._step()
