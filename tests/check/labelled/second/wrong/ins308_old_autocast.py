import torch

scaler = torch.amp.GradScaler("cuda")


def step(model, optimizer, x, y):
    optimizer.zero_grad()
    with torch.cuda.amp.autocast():  # expect: INS308
        loss = torch.nn.functional.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.item()
