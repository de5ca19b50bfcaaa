# looks like INS204: counted from one, so the plain modulo closes full windows
# expect: nothing
import torch

opt = torch.optim.Adam(model.parameters())
for i in range(1, 1201):
    x, y = next(batches)
    loss = torch.nn.functional.cross_entropy(model(x), y) / 6
    loss.backward()
    if i % 6 == 0:
        opt.step()
        opt.zero_grad()
