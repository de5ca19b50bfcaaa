import torch
from torch import nn


class Generator:
    def __init__(self):
        self.mapping = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512))  # expect-one: INS502
        self.synthesis = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 784))
        self.opt = torch.optim.Adam(self.synthesis.parameters(), lr=2e-3)  # expect-one: INS502

    def imitate(self, loader):
        for z, picture in loader:
            self.opt.zero_grad()
            fake = self.synthesis(self.mapping(z))
            loss = nn.functional.mse_loss(fake, picture)
            loss.backward()  # expect-one: INS502
            self.opt.step()  # expect-one: INS502
