import torch

policy = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 2))
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)

for states, actions, advantage in rollouts:
    logp = torch.distributions.Categorical(logits=policy(states)).log_prob(actions)
    loss = -(logp * advantage).mean()
    optimizer.zero_grad()
    grads = torch.autograd.grad(loss, list(policy.parameters()))
    norm = torch.stack([g.norm() for g in grads]).norm()
    print(float(norm))
    optimizer.step()  # expect: INS104
