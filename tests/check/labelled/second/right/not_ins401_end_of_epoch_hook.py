# trap 6: the base class runs the epoch, the subclass schedules when it ends
# expect: nothing
import torch


class Base:
    def fit(self, epochs):
        for epoch in range(epochs):
            for batch in self.loader:
                self.train_batch(batch)
            self.on_epoch_end(epoch)

    def on_epoch_end(self, epoch):
        pass


class Regressor(Base):
    def __init__(self, net, loader):
        self.net = net
        self.loader = loader
        self.opt = torch.optim.SGD(net.parameters(), lr=0.1)
        self.sched = torch.optim.lr_scheduler.StepLR(self.opt, 30)

    def train_batch(self, batch):
        x, y = batch
        self.opt.zero_grad()
        torch.nn.functional.mse_loss(self.net(x), y).backward()
        self.opt.step()

    def on_epoch_end(self, epoch):
        self.sched.step()
        print(epoch, self.sched.get_last_lr())
