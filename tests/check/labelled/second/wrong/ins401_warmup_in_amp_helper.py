import torch


def lr_at(step, warmup=500):
    return min(1.0, (step + 1) / warmup)


def optimise(loss, model, optimizer, scheduler, scaler):
    scaler.scale(loss).backward()
    scheduler.step()  # expect: INS401
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()


def main(model, loader, loss_fn):
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_at)
    scaler = torch.amp.GradScaler("cuda")
    for epoch in range(10):
        for x, y in loader:
            with torch.autocast("cuda", dtype=torch.float16):
                loss = loss_fn(model(x), y)
            optimise(loss, model, optimizer, scheduler, scaler)
