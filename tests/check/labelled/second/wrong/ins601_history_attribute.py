import torch


class VAETrainer:
    def __init__(self, vae, beta=1.0):
        self.vae = vae
        self.beta = beta
        self.adam = torch.optim.Adam(vae.parameters(), lr=1e-3)
        self.history = []

    def loss(self, x):
        recon, mu, logvar = self.vae(x)
        kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
        return torch.nn.functional.mse_loss(recon, x) + self.beta * kl

    def train(self, loader, epochs):
        for _ in range(epochs):
            for x in loader:
                self.adam.zero_grad()
                elbo = self.loss(x)
                elbo.backward()
                self.adam.step()
                self.history.append(elbo)  # expect: INS601
        return self.history
