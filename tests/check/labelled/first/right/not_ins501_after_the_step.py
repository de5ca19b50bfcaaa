# trap 17: gradients are still there after the step, and cleared only later
# expect: nothing
import torch

opt = torch.optim.Adam(net.parameters())
for step, (x, y) in enumerate(loader):
    opt.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(x), y)
    loss.backward()
    opt.step()
    if step % 20 == 0:
        total = sum(p.grad.norm() ** 2 for p in net.parameters()) ** 0.5
        print(step, total.item())
