from base import Training
from torch import nn


class Classes(Training):
    def before_batch(self):
        self.optimizer.zero_grad()

    def before_clip(self):
        self.scaler.unscale_(self.optimizer)

    def after_batch(self):
        self.scaler.update()

    def shared(self, loss):
        return loss / self.size

    def loss(self, batch):
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)
