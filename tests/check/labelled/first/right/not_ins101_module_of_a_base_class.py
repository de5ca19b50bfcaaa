# trap 4: the base class clears the module instead of the optimizer
# expect: nothing
import torch


class Base:
    def begin(self):
        self.module.zero_grad()


class Ranker(Base):
    def __init__(self, module):
        self.module = module
        self.solver = torch.optim.Adagrad(module.parameters(), lr=0.05)

    def train(self, queries):
        for docs, gains in queries:
            self.begin()
            scores = self.module(docs)
            loss = torch.nn.functional.mse_loss(scores, gains)
            loss.backward()
            self.solver.step()
