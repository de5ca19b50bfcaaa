import torch
import torch.nn.functional as F

scaler = torch.amp.GradScaler("cuda")
opt_body = torch.optim.AdamW(body.parameters(), lr=1e-5)
opt_head = torch.optim.AdamW(head.parameters(), lr=1e-3)

for x, y in loader:
    opt_body.zero_grad()
    opt_head.zero_grad()
    with torch.autocast("cuda"):
        loss = F.cross_entropy(head(body(x)), y)
    scaler.scale(loss).backward()
    scaler.step(opt_body)
    opt_head.step()  # expect: INS305
    scaler.update()
