# trap 4: a list comprehension clears every optimizer of a list
# expect: nothing
import torch
import torch.nn.functional as F

nets = [build(width) for width in (64, 128)]
opts = [torch.optim.Adam(net.parameters(), lr=1e-3) for net in nets]

for x, y in loader:
    [opt.zero_grad() for opt in opts]
    mean = sum(net(x) for net in nets) / len(nets)
    loss = F.cross_entropy(mean, y)
    loss.backward()
    for opt in opts:
        opt.step()
