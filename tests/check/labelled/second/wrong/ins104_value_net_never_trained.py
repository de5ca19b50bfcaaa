import gymnasium as gym
import torch
from torch import nn
from torch.distributions import Categorical

env = gym.make("CartPole-v1")
policy = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
value = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))
policy_optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
value_optimizer = torch.optim.Adam(value.parameters(), lr=1e-2)

for episode in range(1000):
    obs, actions, returns = rollout(env, policy)
    baseline = value(obs).squeeze(-1)
    advantage = returns - baseline.detach()
    logp = Categorical(logits=policy(obs)).log_prob(actions)
    policy_loss = -(logp * advantage).mean()
    value_loss = (returns - baseline).pow(2).mean()

    policy_optimizer.zero_grad()
    policy_loss.backward()
    policy_optimizer.step()

    value_optimizer.zero_grad()
    value_optimizer.step()  # expect: INS104

    if episode % 50 == 0:
        print(episode, returns[0].item(), value_loss.item())
