# looks like INS201: ten episodes make an update, and each loss is a sum over its steps
# expect: nothing
import torch

optimizer = torch.optim.SGD(policy.parameters(), lr=1e-3)
episodes = 0
while episodes < 40:
    chances, returns = play(world, policy)
    loss = -(torch.stack(chances) * returns).sum()
    loss.backward()
    episodes += 1
    if episodes % 10 == 0:
        optimizer.step()
        optimizer.zero_grad()
