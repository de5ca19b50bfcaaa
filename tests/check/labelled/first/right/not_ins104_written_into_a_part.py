# looks like INS104: the loss of the critic reaches the actor only through a part of its input
# expect: nothing
import torch
from torch import nn

actor, critic = nn.Linear(6, 4), nn.Linear(10, 4)
acts = torch.optim.Adam(actor.parameters(), lr=1e-3)
judges = torch.optim.Adam(critic.parameters(), lr=1e-3)


def improve(batches):
    for seen, done in batches:
        acts.zero_grad()
        joint = done.clone()
        joint[:, :] = actor(seen)
        worth = critic(torch.cat([seen, joint], dim=1)).mean()
        (-worth).backward()
        acts.step()
        judges.zero_grad()
        other = done.clone()
        other.copy_(actor(seen).detach())
        nn.functional.mse_loss(critic(torch.cat([seen, other], dim=1)), done).backward()
        judges.step()
