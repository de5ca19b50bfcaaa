# trap 10: the generator's backward reaches the critic, which is cleared before its own
# expect: nothing
import torch


def penalty(critic, real, fake):
    mix = torch.rand(len(real), 1, 1, 1) * (real - fake) + fake
    mix.requires_grad_(True)
    score = critic(mix).sum()
    (slope,) = torch.autograd.grad(score, mix, create_graph=True)
    return ((slope.flatten(1).norm(dim=1) - 1) ** 2).mean()


def train(gen, critic, loader, opt_g, opt_c):
    for real in loader:
        fake = gen(torch.randn(len(real), 128))
        opt_c.zero_grad()
        distance = critic(fake.detach()).mean() - critic(real).mean()
        loss_c = distance + 10 * penalty(critic, real, fake.detach())
        loss_c.backward()
        opt_c.step()

        opt_g.zero_grad()
        loss_g = -critic(fake).mean()
        loss_g.backward()
        opt_g.step()
