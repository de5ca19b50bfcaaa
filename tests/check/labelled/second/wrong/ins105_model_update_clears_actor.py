import torch
import torch.nn.functional as F


class Agent:
    def __init__(self, actor, obs_dim, n_actions):
        self.actor = actor
        self.model = WorldModel(obs_dim, n_actions)
        self.actor_optim = torch.optim.Adam(self.actor.parameters(), lr=3e-4)
        self.model_optim = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def update_actor(self, obs, expert_action):
        loss = F.cross_entropy(self.actor(obs), expert_action)
        self.actor_optim.zero_grad()
        loss.backward()
        self.actor_optim.step()
        return loss.item()

    def update_model(self, obs, action, next_obs):
        predicted = self.model(obs, action)
        loss = F.mse_loss(predicted, next_obs)
        self.actor_optim.zero_grad()  # expect: INS105
        loss.backward()
        self.model_optim.step()
        return loss.item()

    def train(self, buffer, updates):
        for _ in range(updates):
            obs, action, next_obs = buffer.sample(256)
            self.update_actor(obs, action)
            self.update_model(obs, action, next_obs)
