import torch

optimizer = torch.optim.RMSprop(q_net.parameters(), lr=2.5e-4)
frames = 0
while frames < 1_000_000:
    state, action, reward, following, done = replay.sample(32)
    with torch.no_grad():
        target = reward + 0.99 * (1 - done) * target_net(following).max(1).values
    value = q_net(state).gather(1, action)[:, 0]
    loss = torch.nn.functional.smooth_l1_loss(value, target)
    optimizer.zero_grad()
    torch.nn.utils.clip_grad_norm_(q_net.parameters(), 10.0)  # expect: INS302
    loss.backward()
    optimizer.step()
    frames += 32
