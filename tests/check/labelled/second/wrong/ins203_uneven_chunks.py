import torch
from torch import nn
from torch.utils.data import DataLoader


def fit(net, dataset, epochs):
    loader = DataLoader(dataset, batch_size=64, shuffle=True, drop_last=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    criterion = nn.MSELoss()
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            xs, ys = x.split(24), y.split(24)  # 24, 24 and 16 samples
            for part, target in zip(xs, ys):
                loss = criterion(net(part), target) / len(xs)  # expect-one: INS203
                loss.backward()  # expect-one: INS203
            optimizer.step()
