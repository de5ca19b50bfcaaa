# trap 14: things called step that are not updates, and an optimizer called policy.optimizer
# expect: nothing
import torch
import torch.nn.functional as F


class Policy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(8, 4)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=1e-3)

    def forward(self, x):
        return F.log_softmax(self.fc(x), dim=-1)


def run(env, policy, ema, profiler, episodes):
    for _ in range(episodes):
        state, done, terms, rewards = env.reset(), False, [], []
        while not done:
            logp = policy(torch.as_tensor(state))
            action = logp.exp().multinomial(1).item()
            state, reward, done, _ = env.step(action)
            terms.append(logp[action])
            rewards.append(reward)
            profiler.step()
        loss = -(torch.stack(terms) * torch.tensor(rewards)).sum()
        policy.optimizer.zero_grad()
        loss.backward()
        policy.optimizer.step()
        ema.step(policy.parameters())
