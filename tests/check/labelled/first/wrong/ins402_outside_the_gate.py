import torch
from torch.optim.lr_scheduler import LinearLR

ACCUM = 5
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
decay = LinearLR(optimizer, 1.0, 0.0, total_iters=20_000 // ACCUM)
optimizer.zero_grad()
for i in range(20_000):
    x, y = next(stream)
    loss = torch.nn.functional.cross_entropy(net(x), y) / ACCUM
    loss.backward()
    if i % ACCUM == ACCUM - 1:
        optimizer.step()
        optimizer.zero_grad()
    decay.step()  # expect: INS402
