# looks like INS204: the critic's loss reaches the generator, whose own turn is every fifth
# expect: nothing
import torch
from torch import nn

gen, critic = nn.Linear(4, 8), nn.Linear(8, 1)
opt_g = torch.optim.SGD(gen.parameters(), lr=0.1)
opt_d = torch.optim.SGD(critic.parameters(), lr=0.1)

for iteration, (real, noise) in enumerate(loader):
    opt_d.zero_grad()
    loss_d = critic(gen(noise)).mean() - critic(real).mean()
    loss_d.backward()
    opt_d.step()
    opt_g.zero_grad()
    if iteration % 5 == 0:
        loss_g = -critic(gen(noise)).mean()
        loss_g.backward()
        opt_g.step()
