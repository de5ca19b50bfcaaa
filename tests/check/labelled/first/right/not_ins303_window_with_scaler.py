# looks like INS303: unscaled and clipped once, when the micro loop is over
# expect: nothing
import torch

scaler = torch.amp.GradScaler("cuda")
for update in range(total_updates):
    for _ in range(micro):
        x, y = next(data)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = torch.nn.functional.cross_entropy(model(x), y) / micro
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
