# trap 4: a helper clears every optimizer of a dictionary
# expect: nothing
import torch
import torch.nn.functional as F


class StarSolver:
    def __init__(self, nets):
        self.nets = nets
        self.optims = {
            name: torch.optim.Adam(net.parameters(), lr=1e-4) for name, net in nets.items()
        }

    def _reset_grad(self):
        for optim in self.optims.values():
            optim.zero_grad()

    def train(self, loader, iters):
        feed = iter(loader)
        for _ in range(iters):
            image, label = next(feed)
            d_loss = F.cross_entropy(self.nets["discriminator"](image), label)
            self._reset_grad()
            d_loss.backward()
            self.optims["discriminator"].step()

            fake = self.nets["generator"](image)
            g_loss = F.cross_entropy(self.nets["discriminator"](fake), label)
            self._reset_grad()
            g_loss.backward()
            self.optims["generator"].step()
