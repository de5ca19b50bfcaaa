# looks like INS204: the plain modulo is right, because counting starts at one
# expect: nothing
import itertools

import torch

accum = 4
opt = torch.optim.SGD(model.parameters(), lr=0.1)
opt.zero_grad()
for step, (x, y) in enumerate(itertools.cycle(loader), start=1):
    loss = torch.nn.functional.cross_entropy(model(x), y) / accum
    loss.backward()
    if step % accum == 0:
        opt.step()
        opt.zero_grad()
    if step == 40_000:
        break
