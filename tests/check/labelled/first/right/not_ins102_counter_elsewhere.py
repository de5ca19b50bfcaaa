# looks like INS102: a counter of another object decides both, and moves in between
# expect: nothing
import torch


def train(model, loader, state):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        if state.n % 4 == 0:
            optimizer.zero_grad()
        (torch.nn.functional.mse_loss(model(x), y) / 4).backward()
        state.n += 1
        if state.n % 4 == 0:
            optimizer.step()
