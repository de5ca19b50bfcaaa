# trap 7: a hook divides the gradients
# expect: nothing
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for p in model.parameters():
    p.register_hook(lambda grad: grad / 4)
for i, (x, y) in enumerate(loader):
    torch.nn.functional.mse_loss(model(x), y).backward()
    if (i + 1) % 4 == 0 or i + 1 == len(loader):
        optimizer.step()
        optimizer.zero_grad()
