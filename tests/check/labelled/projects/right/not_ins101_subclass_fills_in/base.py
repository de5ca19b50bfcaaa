import torch


class Training:
    def __init__(self, net, size):
        self.net, self.size = net, size
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        self.scaler = torch.amp.GradScaler()

    def before_batch(self):
        pass

    def before_clip(self):
        """Nothing, here."""

    def shared(self, loss):
        return loss

    def run(self, loader):
        for batch in loader:
            self.before_batch()
            self.scaler.scale(self.shared(self.loss(batch))).backward()
            self.before_clip()
            torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
            self.scaler.step(self.optimizer)
            self.after_batch()
