import torch


def pretrain(model, data, cfg):
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=cfg.updates)
    scaler = torch.amp.GradScaler("cuda")
    for _ in range(cfg.updates):
        optimizer.zero_grad(set_to_none=True)
        for _ in range(cfg.micro):
            x, y = next(data)
            with torch.autocast("cuda", dtype=torch.float16):
                loss = torch.nn.functional.cross_entropy(model(x), y) / cfg.micro
            scaler.scale(loss).backward()
            scheduler.step()  # expect: INS402
        scaler.step(optimizer)
        scaler.update()
