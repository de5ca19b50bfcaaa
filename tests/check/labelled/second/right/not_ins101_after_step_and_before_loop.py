# trap 1: cleared once before the loop, then after every gated step
# expect: nothing
import torch


def train(model, stream, loss_fn, n=4, updates=1000):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.zero_grad()
    for i in range(updates * n):
        x, y = next(stream)
        (loss_fn(model(x), y) / n).backward()
        if i % n == n - 1:
            optimizer.step()
            optimizer.zero_grad()


def main(model, stream):
    train(model, stream, torch.nn.MSELoss(), n=4)
