import torch


class Learner:
    """Regression on tabular data."""

    def __init__(self, net):
        self.net = net
        self.solver = torch.optim.RMSprop(net.parameters(), lr=1e-3)

    def _reset(self):
        self.solver.zero_grad()  # expect-one: INS102

    def learn(self, x, y):
        error = torch.nn.functional.smooth_l1_loss(self.net(x).squeeze(-1), y)
        error.backward()
        self._reset()  # expect-one: INS102
        self.solver.step()
        return error.item()


def run(net, loader, rounds=5):
    learner = Learner(net)
    for _ in range(rounds):
        history = [learner.learn(x, y) for x, y in loader]
        print(sum(history) / len(history))
