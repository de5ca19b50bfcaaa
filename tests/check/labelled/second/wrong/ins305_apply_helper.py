import torch


def backward_pass(loss, scaler):
    if scaler:
        scaler.scale(loss).backward()
    else:
        loss.backward()


def apply_gradients(optimizer):
    optimizer.step()  # expect: INS305
    optimizer.zero_grad()


def main(cfg, model, loader, criterion):
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr)
    scaler = torch.amp.GradScaler("cuda") if cfg.fp16 else None
    for epoch in range(cfg.epochs):
        for x, y in loader:
            with torch.autocast("cuda", dtype=torch.float16, enabled=cfg.fp16):
                loss = criterion(model(x), y)
            backward_pass(loss, scaler)
            apply_gradients(optimizer)
            if scaler:
                scaler.update()
