import torch
from torch import nn


def update(model, micro_batches, opt, criterion):
    n = len(micro_batches)
    opt.zero_grad()
    for x, y in micro_batches:
        loss = criterion(model(x), y) / n  # expect-one: INS205
        loss.backward()  # expect-one: INS205
    for p in model.parameters():
        if p.grad is not None:
            p.grad.div_(n)  # expect-one: INS205
    opt.step()


def train(model, big_batches):
    criterion = nn.CrossEntropyLoss()
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for micro_batches in big_batches:  # lists of four (images, labels)
        update(model, micro_batches, opt, criterion)
