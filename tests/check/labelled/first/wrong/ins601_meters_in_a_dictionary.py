import torch
import torch.nn.functional as F


class VAETrainer:
    def __init__(self, vae):
        self.vae = vae
        self.opt = torch.optim.Adam(vae.parameters(), lr=1e-3)
        self.totals = {"loss": 0.0}

    def fit(self, loader, epochs):
        for _ in range(epochs):
            for x, _ in loader:
                recon, mu, logvar = self.vae(x)
                kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
                loss = F.mse_loss(recon, x) + kl
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                self.totals["loss"] += loss  # expect: INS601
