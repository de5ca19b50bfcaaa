# looks like INS106: two clearings in a row, of two optimizers
# expect: nothing
import torch

opt_actor = torch.optim.Adam(actor.parameters(), lr=1e-4)
opt_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
for obs, act, ret in batches:
    opt_actor.zero_grad()
    opt_critic.zero_grad()
    value = critic(obs)
    advantage = (ret - value).detach()
    loss = torch.nn.functional.mse_loss(value, ret) - (actor.log_prob(obs, act) * advantage).mean()
    loss.backward()
    opt_actor.step()
    opt_critic.step()
