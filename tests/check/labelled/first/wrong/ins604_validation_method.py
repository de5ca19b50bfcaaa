import torch


class Classifier:
    def __init__(self, net):
        self.net = net
        self.optimizer = torch.optim.Adam(net.parameters())

    @torch.no_grad()
    def validate(self, loader):
        self.net.eval()  # expect-one: INS604
        return sum((self.net(x).argmax(1) == y).sum().item() for x, y in loader)

    def fit(self, train, val, epochs):
        self.net.train()  # expect-one: INS604
        for epoch in range(epochs):
            for x, y in train:
                self.optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(self.net(x), y)  # expect-one: INS604
                loss.backward()  # expect-one: INS604
                self.optimizer.step()
            print(epoch, self.validate(val))  # expect-one: INS604
