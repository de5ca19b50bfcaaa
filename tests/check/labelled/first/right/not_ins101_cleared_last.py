# trap 1: cleared at the end of each iteration; a new model has nothing to clear before the first
# expect: nothing
import torch


def fit(net, loader, epochs=5):
    opt = torch.optim.NAdam(net.parameters())
    for _ in range(epochs):
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(net(x), y)
            loss.backward()
            opt.step()
            opt.zero_grad()
