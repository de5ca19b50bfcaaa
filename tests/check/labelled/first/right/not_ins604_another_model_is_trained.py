# looks like INS604: the last phase names the model that it trains, and leaves the other as it is
# expect: nothing
import torch
from torch import nn
from torch.nn import functional

encoder = nn.Sequential(nn.Linear(784, 64), nn.Dropout(0.2), nn.Linear(64, 784))
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.01)


def reconstruct():
    encoder.train()
    for x, _ in loader:
        optimizer.zero_grad()
        loss = functional.mse_loss(encoder(x), x)
        loss.backward()
        optimizer.step()


def measure():
    encoder.eval()
    with torch.no_grad():
        return sum(functional.mse_loss(encoder(x), x).item() for x, _ in test_loader)


for _ in range(2):
    reconstruct()
    print(measure())

head = nn.Sequential(nn.Dropout(0.5), nn.Linear(784, 10))
both = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.001)


def classify():
    head.train()
    for x, y in loader:
        both.zero_grad()
        loss = functional.cross_entropy(head(encoder(x)), y)
        loss.backward()
        both.step()


for _ in range(5):
    classify()
