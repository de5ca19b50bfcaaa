import torch
import torch.nn.functional as F

ACC = 4


def compute_loss(model, batch):
    x, y = batch
    return F.cross_entropy(model(x), y) / ACC  # expect-one: INS205


def train(model, source, updates):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(updates):
        optimizer.zero_grad()
        for _ in range(ACC):
            loss = compute_loss(model, next(source))
            loss = loss / ACC  # expect-one: INS205
            loss.backward()  # expect-one: INS205
        optimizer.step()
