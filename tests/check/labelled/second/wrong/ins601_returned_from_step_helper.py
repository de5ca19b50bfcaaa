import torch
import torch.nn.functional as F


def train_step(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss  # expect-one: INS601


def train(model, loader, epochs):
    optimizer = torch.optim.Adam(model.parameters())
    epoch_losses = []
    for epoch in range(epochs):
        total = 0
        for x, y in loader:
            total = total + train_step(model, optimizer, x, y)  # expect-one: INS601
        epoch_losses.append(float(total) / len(loader))
    return epoch_losses
