# trap 3: the generator is trained at every fifth batch, with one backward of its own
# expect: nothing
import torch

opt_g = torch.optim.RMSprop(gen.parameters(), lr=5e-5)
opt_d = torch.optim.RMSprop(disc.parameters(), lr=5e-5)
for i, real in enumerate(loader):
    fake = gen(torch.randn(len(real), 100))
    opt_d.zero_grad()
    loss_d = disc(fake.detach()).mean() - disc(real).mean()
    loss_d.backward()
    opt_d.step()
    if (i + 1) % 5 == 0:
        opt_g.zero_grad()
        loss_g = -disc(gen(torch.randn(len(real), 100))).mean()
        loss_g.backward()
        opt_g.step()
