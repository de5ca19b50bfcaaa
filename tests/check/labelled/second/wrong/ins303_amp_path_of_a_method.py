import torch
from torch import nn


class Trainer:
    def __init__(self, model, optimizer, amp=True, clip=1.0):
        self.model = model
        self.optimizer = optimizer
        self.clip = clip
        self.scaler = torch.amp.GradScaler("cuda") if amp else None

    def _backward(self, loss):
        if self.scaler is not None:
            self.scaler.scale(loss).backward()
        else:
            loss.backward()

    def _step(self):
        nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)  # expect: INS303
        if self.scaler is not None:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()

    def train_epoch(self, loader, criterion):
        self.model.train()
        for x, y in loader:
            self.optimizer.zero_grad()
            with torch.autocast("cuda", torch.float16, enabled=self.scaler is not None):
                loss = criterion(self.model(x), y)
            self._backward(loss)
            self._step()
