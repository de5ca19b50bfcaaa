# trap 4: zeros are written into the gradients
# expect: nothing
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
