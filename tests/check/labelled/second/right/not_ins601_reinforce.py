# trap 8: terms of one episode are collected, summed, backpropagated and thrown away
# expect: nothing
import torch


class Reinforce:
    def __init__(self, policy):
        self.policy = policy
        self.log_probs = []
        self.rewards = []
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)

    def act(self, state):
        dist = torch.distributions.Categorical(logits=self.policy(state))
        action = dist.sample()
        self.log_probs.append(dist.log_prob(action))
        return action.item()

    def finish_episode(self):
        ret, loss = 0.0, 0
        for logp, r in zip(reversed(self.log_probs), reversed(self.rewards)):
            ret = r + 0.99 * ret
            loss += -logp * ret
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.log_probs.clear()
        self.rewards.clear()


def main(env, agent, episodes):
    for _ in range(episodes):
        state, done = env.reset(), False
        while not done:
            state, reward, done, _ = env.step(agent.act(state))
            agent.rewards.append(reward)
        agent.finish_episode()
