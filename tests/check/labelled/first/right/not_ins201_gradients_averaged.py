# trap 7: the gradients are divided by n once, before the step
# expect: nothing
import torch


def update(model, optimizer, micro_batches):
    optimizer.zero_grad()
    n = len(micro_batches)
    for x, y in micro_batches:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
    for p in model.parameters():
        if p.grad is not None:
            p.grad.mul_(1 / n)
    optimizer.step()


def train(model, windows):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for micro_batches in windows:
        update(model, optimizer, micro_batches)
