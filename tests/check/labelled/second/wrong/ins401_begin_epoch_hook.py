import torch


class Base:
    def fit(self, epochs):
        for epoch in range(epochs):
            self.begin_epoch(epoch)
            for batch in self.loader:
                self.train_batch(batch)


class Segmenter(Base):
    def __init__(self, net, loader):
        self.net = net
        self.loader = loader
        self.optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, gamma=0.95)

    def begin_epoch(self, epoch):
        self.scheduler.step()  # expect: INS401
        print(f"epoch {epoch}, lr {self.scheduler.get_last_lr()[0]:.2e}")

    def train_batch(self, batch):
        image, mask = batch
        self.optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(self.net(image), mask)
        loss.backward()
        self.optimizer.step()
