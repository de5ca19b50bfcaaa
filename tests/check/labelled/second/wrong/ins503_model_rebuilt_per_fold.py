import torch
from torch import nn


def build():
    return nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 1))


def cross_validate(folds, epochs=40):
    model = build()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)  # expect-one: INS502|INS503
    bce = nn.BCEWithLogitsLoss()
    for train_loader, test_loader in folds:
        model = build()  # expect-one: INS502|INS503
        for _ in range(epochs):
            for x, y in train_loader:
                model.zero_grad()
                loss = bce(model(x).squeeze(1), y)
                loss.backward()  # expect-one: INS502|INS503
                optimizer.step()  # expect-one: INS502|INS503
        print(score(model, test_loader))
