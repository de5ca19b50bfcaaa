# looks like INS302: weights are clamped after the step, not gradients
# expect: nothing
import torch

opt = torch.optim.RMSprop(critic.parameters(), lr=5e-5)
for real, fake in pairs:
    opt.zero_grad()
    loss = critic(fake).mean() - critic(real).mean()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for w in critic.parameters():
            w.clamp_(-0.01, 0.01)
