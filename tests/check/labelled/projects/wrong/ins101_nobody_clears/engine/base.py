from .updates import apply_gradients


class BaseTrainer:
    def __init__(self, net, optimizer):
        self.net = net
        self.optimizer = optimizer

    def compute_loss(self, batch):
        raise NotImplementedError

    def fit(self, loader, epochs):
        self.net.train()
        for _ in range(epochs):
            for batch in loader:
                loss = self.compute_loss(batch)
                loss.backward()  # expect-one: INS101
                apply_gradients(self.optimizer)
