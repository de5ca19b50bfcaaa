# trap 3: every sixteenth iteration adds a regularisation with its own window
# expect: nothing
import torch
import torch.nn.functional as F


def train_d(D, reals, fakes, steps, r1_every=16, gamma=10.0):
    opt = torch.optim.Adam(D.parameters(), lr=2e-3, betas=(0.0, 0.99))
    for i in range(steps):
        real, fake = next(reals), next(fakes)
        loss = F.softplus(-D(real)).mean() + F.softplus(D(fake)).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if i % r1_every == 0:
            real.requires_grad_(True)
            (grad,) = torch.autograd.grad(D(real).sum(), real, create_graph=True)
            penalty = grad.pow(2).flatten(1).sum(1).mean()
            opt.zero_grad()
            (gamma / 2 * penalty * r1_every).backward()
            opt.step()
