import torch

scaler = torch.amp.GradScaler("cuda")
for wave, transcript in speech:
    with torch.autocast("cuda", dtype=torch.float16):
        loss = recogniser(wave, transcript).mean()
    scaler.scale(loss).backward()
    scaler.step(optim)
    scaler.update()
    optim.zero_grad(set_to_none=False)  # expect: INS602
