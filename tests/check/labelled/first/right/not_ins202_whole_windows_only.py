# looks like INS202: only as many batches are drawn as fill whole windows
# expect: nothing
from itertools import islice

import torch

N = 4
opt = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(epochs):
    whole = len(loader) // N * N
    opt.zero_grad()
    for i, (x, y) in enumerate(islice(loader, whole)):
        loss = torch.nn.functional.mse_loss(model(x), y)
        (loss / N).backward()
        if (i + 1) % N == 0:
            opt.step()
            opt.zero_grad()
