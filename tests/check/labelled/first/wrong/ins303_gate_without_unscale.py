import torch
import torch.nn.functional as F

scaler = torch.amp.GradScaler("cuda")
optim = torch.optim.AdamW(model.parameters(), lr=1e-4)
for update in range(updates):
    optim.zero_grad(set_to_none=True)
    for _ in range(4):
        tokens, labels = next(data)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = F.cross_entropy(model(tokens), labels) / 4
        scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # expect: INS303
    scaler.step(optim)
    scaler.update()
