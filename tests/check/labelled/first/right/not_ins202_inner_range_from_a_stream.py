# looks like INS202: an endless stream fills each window, and no epoch can cut one short
# expect: nothing
import torch

stream = iter(loader)
updates = 0
while updates < 50_000:
    optimizer.zero_grad(set_to_none=True)
    for _ in range(grad_accum):
        try:
            x, y = next(stream)
        except StopIteration:
            stream = iter(loader)
            x, y = next(stream)
        loss = torch.nn.functional.cross_entropy(model(x), y) / grad_accum
        loss.backward()
    optimizer.step()
    updates += 1
