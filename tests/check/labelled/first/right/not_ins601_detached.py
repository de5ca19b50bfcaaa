# looks like INS601: what is summed is detached
# expect: nothing
import torch

running = torch.zeros((), device="cuda")
for i, (x, y) in enumerate(loader):
    opt.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
    running += loss.detach()
    if (i + 1) % 100 == 0:
        print(running.item() / 100)
        running.zero_()
