# looks like INS402: patches accumulate, and the scheduler waits for the image
# expect: nothing
import torch

opt = torch.optim.Adam(net.parameters(), lr=1e-4)
sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.9999)
for image, target in loader:
    patches, wanted = image.split(64, dim=-1), target.split(64, dim=-1)
    opt.zero_grad()
    for patch, goal in zip(patches, wanted):
        loss = torch.nn.functional.mse_loss(net(patch), goal) * goal.numel() / target.numel()
        loss.backward()
    opt.step()
    sched.step()
