# trap 14: an environment and a profiler step too
# expect: nothing
import torch


def play(env, agent, prof, episodes):
    trainer = torch.optim.Adam(agent.parameters(), lr=1e-3)
    for _ in range(episodes):
        obs, done, logps, rewards = env.reset(), False, [], []
        while not done:
            dist = torch.distributions.Categorical(logits=agent(obs))
            action = dist.sample()
            obs, reward, done, _ = env.step(action.item())
            logps.append(dist.log_prob(action))
            rewards.append(reward)
            prof.step()
        loss = -torch.stack(logps).sum() * sum(rewards)
        trainer.zero_grad()
        loss.backward()
        trainer.step()
