import torch
from torch import nn


def evaluate(model, loader):
    model.eval()  # expect-one: INS604
    hits = 0
    with torch.no_grad():
        for x, y in loader:
            hits += (model(x).argmax(1) == y).sum().item()
    return hits / len(loader.dataset)


def main(train_loader, val_loader, epochs=30):
    model = nn.Sequential(nn.Linear(100, 200), nn.Dropout(0.5), nn.ReLU(), nn.Linear(200, 10))
    optimizer = torch.optim.Adam(model.parameters())
    model.train()  # expect-one: INS604
    for epoch in range(epochs):
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)  # expect-one: INS604
            loss.backward()  # expect-one: INS604
            optimizer.step()
        print(epoch, evaluate(model, val_loader))  # expect-one: INS604
