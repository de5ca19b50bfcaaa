import torch
import torch.cuda.amp as amp  # expect-one: INS308

scaler = amp.GradScaler(enabled=use_fp16)  # expect-one: INS308
for x, y in loader:
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", enabled=use_fp16):
        loss = torch.nn.functional.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
