# looks like INS102: a window is cleared by its first micro-batch and stepped by its last
# expect: nothing
import torch

optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
for i in range(5000):
    x, y = next(batches)
    if i % 5 == 0:
        optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(net(x), y)
    (loss / 5).backward()
    if i % 5 == 4:
        optimizer.step()
