import torch

scaler = torch.amp.GradScaler("cuda")
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)

for epoch in range(90):
    for img, target in loader:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = criterion(net(img.cuda()), target.cuda())
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)  # expect: INS303
        scaler.step(optimizer)
        scaler.update()
