# looks like INS401: a plateau scheduler is told a loss; the loop may stop early
# expect: nothing
import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau


def fit(model, train, valid, patience=10):
    optimizer = torch.optim.Adam(model.parameters())
    plateau = ReduceLROnPlateau(optimizer, factor=0.5)
    best, waited = float("inf"), 0
    for _ in range(1000):
        model.train()
        for x, y in train:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        current = validate(model, valid)
        plateau.step(current)
        best, waited = (current, 0) if current < best else (best, waited + 1)
        if waited >= patience:
            break
