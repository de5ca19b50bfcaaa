# trap 9: a benchmark of the step alone
# expect: nothing
import time

import torch

optimizer = torch.optim.Adam(model.parameters())
model(batch).sum().backward()
start = time.perf_counter()
for _ in range(100):
    optimizer.step()
print(time.perf_counter() - start)
