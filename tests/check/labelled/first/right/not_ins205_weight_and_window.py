# looks like INS205: one factor is the weight of a task, the other one the window
# expect: nothing
import torch
import torch.nn.functional as F

MICRO = 4
opt = torch.optim.AdamW(net.parameters(), lr=1e-4)
for update in range(20_000):
    opt.zero_grad()
    for _ in range(MICRO):
        x, mask, label = next(stream)
        seg, cls = net(x)
        loss = F.cross_entropy(seg, mask) + 0.25 * F.cross_entropy(cls, label)
        (loss / MICRO).backward()
    opt.step()
