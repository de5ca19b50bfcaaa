import torch
from torch.nn.utils import clip_grad_norm_


def grad_norm(model, optimizer, scaler):
    scaler.unscale_(optimizer)  # expect-one: INS307
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    return torch.stack([g.norm() for g in grads]).norm()


def train(model, optimizer, loader, criterion, log):
    scaler = torch.amp.GradScaler("cuda")
    model.train()
    for step, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = criterion(model(x), y)
        scaler.scale(loss).backward()
        log(step, loss.item(), grad_norm(model, optimizer, scaler).item())
        scaler.unscale_(optimizer)  # expect-one: INS307
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
