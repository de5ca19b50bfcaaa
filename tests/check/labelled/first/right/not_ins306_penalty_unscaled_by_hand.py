# looks like INS306: gradients for a penalty are taken with the scale and divided by it, as documented
# expect: nothing
import torch

scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(net(x), y)
    scaled = torch.autograd.grad(scaler.scale(loss), net.parameters(), create_graph=True)
    inverse = 1.0 / scaler.get_scale()
    with torch.autocast("cuda", dtype=torch.float16):
        norm = sum((g * inverse).pow(2).sum() for g in scaled).sqrt()
        loss = loss + 0.1 * norm
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
