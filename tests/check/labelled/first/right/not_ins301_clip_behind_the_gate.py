# looks like INS301: the clip is in the loop over micro-batches, but only where a window closes
# expect: nothing
import torch

opt = torch.optim.Adam(model.parameters(), lr=3e-4)
opt.zero_grad()
for i in range(8000):
    x, y = next(batches)
    loss = torch.nn.functional.cross_entropy(model(x), y) / 4
    loss.backward()
    if (i + 1) % 4 == 0:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
