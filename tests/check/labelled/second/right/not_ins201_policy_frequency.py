# trap 3: the policy is updated every second iteration, which is no accumulation
# expect: nothing
import copy

import torch
import torch.nn.functional as F


class TD3:
    def __init__(self, actor, critic, policy_freq=2):
        self.actor = actor
        self.critic = critic
        self.critic_target = copy.deepcopy(critic)
        self.actor_optimizer = torch.optim.Adam(actor.parameters(), lr=3e-4)
        self.critic_optimizer = torch.optim.Adam(critic.parameters(), lr=3e-4)
        self.policy_freq = policy_freq
        self.total_it = 0

    def train(self, replay_buffer, batch_size=256):
        self.total_it += 1
        state, action, next_state, reward, not_done = replay_buffer.sample(batch_size)
        with torch.no_grad():
            target = reward + not_done * 0.99 * self.critic_target(next_state, action)
        critic_loss = F.mse_loss(self.critic(state, action), target)
        self.critic_optimizer.zero_grad()
        critic_loss.backward()
        self.critic_optimizer.step()

        if self.total_it % self.policy_freq == 0:
            actor_loss = -self.critic(state, self.actor(state)).mean()
            self.actor_optimizer.zero_grad()
            actor_loss.backward()
            self.actor_optimizer.step()
            for p, q in zip(self.critic.parameters(), self.critic_target.parameters()):
                q.data.copy_(0.005 * p.data + 0.995 * q.data)


def main(agent_nets, buffer, steps):
    agent = TD3(*agent_nets)
    for _ in range(steps):
        agent.train(buffer)
