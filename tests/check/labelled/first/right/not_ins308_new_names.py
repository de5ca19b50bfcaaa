# looks like INS308: `torch.amp` with a device is the new spelling
# expect: nothing
import torch
from torch.amp import GradScaler, autocast

scaler = GradScaler("cuda")
for x, y in loader:
    optimizer.zero_grad()
    with autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
