# trap 11: a flag of the trainer picks the path, in three methods
# expect: nothing
import torch


class Trainer:
    def __init__(self, net, fp16):
        self.net, self.fp16 = net, fp16
        self.opt = torch.optim.Adam(net.parameters())
        self.scaler = torch.amp.GradScaler("cuda") if fp16 else None

    def backward(self, loss):
        if self.fp16:
            self.scaler.scale(loss).backward()
        else:
            loss.backward()

    def step(self):
        if self.fp16:
            self.scaler.unscale_(self.opt)
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), 5.0)
        if self.fp16:
            self.scaler.step(self.opt)
            self.scaler.update()
        else:
            self.opt.step()

    def fit(self, loader):
        for x, y in loader:
            self.opt.zero_grad()
            with torch.autocast("cuda", enabled=self.fp16):
                loss = torch.nn.functional.mse_loss(self.net(x), y)
            self.backward(loss)
            self.step()
