# looks like INS601: an array of numpy takes the number of a loss, and not its graph
# expect: nothing
import numpy as np
import torch


def train(models, optimizers, loader):
    for epoch in range(5):
        costs = np.zeros(len(models))
        for x, y in loader:
            for at in range(len(models)):
                cost = torch.nn.functional.cross_entropy(models[at](x), y)
                optimizers[at].zero_grad()
                cost.backward()
                optimizers[at].step()
                costs[at] += cost / len(loader)
        print(epoch, costs.mean())
