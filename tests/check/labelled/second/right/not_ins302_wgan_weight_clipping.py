# looks like INS302: weights, not gradients, are clipped after the step
# expect: nothing
import torch

critic, generator = Critic(), Generator()
opt_c = torch.optim.RMSprop(critic.parameters(), lr=5e-5)
opt_g = torch.optim.RMSprop(generator.parameters(), lr=5e-5)

for i, real in enumerate(real_batches):
    opt_c.zero_grad()
    fake = generator(torch.randn(len(real), 64)).detach()
    loss_c = critic(fake).mean() - critic(real).mean()
    loss_c.backward()
    opt_c.step()
    for p in critic.parameters():
        p.data.clamp_(-0.01, 0.01)

    if i % 5 == 0:
        opt_g.zero_grad()
        loss_g = -critic(generator(torch.randn(len(real), 64))).mean()
        loss_g.backward()
        opt_g.step()
