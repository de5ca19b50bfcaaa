# trap 4: a stack of callbacks clears at its end
# expect: nothing
from contextlib import ExitStack

import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    with ExitStack() as stack:
        stack.callback(optimizer.zero_grad)
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
