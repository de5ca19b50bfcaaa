import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 16))

    def forward(self, x):
        return self.net(x)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 784))

    def forward(self, z):
        return self.net(z)


def main(loader):
    encoder, decoder = Encoder(), Decoder()  # expect-one: INS502
    optimizer = torch.optim.Adam(decoder.parameters(), lr=1e-3)  # expect-one: INS502
    encoder.train()
    decoder.train()
    for epoch in range(50):
        for x, _ in loader:
            x = x.flatten(1)
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(decoder(encoder(x)), x)
            loss.backward()  # expect-one: INS502
            optimizer.step()  # expect-one: INS502
