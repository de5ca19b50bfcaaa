# looks like INS301: two backwards and two clips in an iteration, each of a model of its own
# expect: nothing
import torch
from torch.nn.utils import clip_grad_norm_


def update(actor, critic, opt_a, opt_c, obs, act, ret):
    value = critic(obs).squeeze(-1)
    advantage = (ret - value).detach()

    opt_c.zero_grad()
    value_loss = torch.nn.functional.mse_loss(value, ret)
    value_loss.backward()
    clip_grad_norm_(critic.parameters(), 0.5)
    opt_c.step()

    opt_a.zero_grad()
    policy_loss = -(actor.log_prob(obs, act) * advantage).mean()
    policy_loss.backward()
    clip_grad_norm_(actor.parameters(), 0.5)
    opt_a.step()
