import torch
from torch import nn
from torchvision.utils import save_image


class DiffusionTrainer:
    def __init__(self, unet, loader):
        self.unet = unet
        self.loader = loader
        self.opt = torch.optim.AdamW(unet.parameters(), lr=1e-4)

    @torch.no_grad()
    def sample(self, n):
        self.unet.eval()  # expect-one: INS604
        x = torch.randn(n, 3, 64, 64)
        for t in reversed(range(100)):
            x = x - 0.01 * self.unet(x, torch.full((n,), t))
        return x

    def train(self, epochs):
        self.unet.train()  # expect-one: INS604
        for epoch in range(epochs):
            for x in self.loader:
                t = torch.randint(0, 100, (x.size(0),))
                noise = torch.randn_like(x)
                loss = nn.functional.mse_loss(self.unet(x + noise, t), noise)  # expect-one: INS604
                self.opt.zero_grad()
                loss.backward()  # expect-one: INS604
                self.opt.step()
            save_image(self.sample(16), f"epoch{epoch}.png")  # expect-one: INS604
