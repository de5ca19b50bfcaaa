import torch
from torch.cuda.amp import GradScaler  # expect-one: INS308


def fit(model, loader, loss_fn, lr):
    scaler = GradScaler()  # expect-one: INS308
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    for x, y in loader:
        optimizer.zero_grad()
        with torch.amp.autocast("cuda", dtype=torch.float16):
            loss = loss_fn(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
