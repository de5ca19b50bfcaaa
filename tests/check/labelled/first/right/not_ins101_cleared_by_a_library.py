# trap 5: a function of another package clears
# expect: nothing
import torch
from training_tools import zero_all_grads

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
    zero_all_grads()
