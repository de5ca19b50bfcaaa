import torch


def train(model, batches, updates):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cuda")
    for _ in range(updates):
        optimizer.zero_grad()
        for _ in range(4):
            x, y = next(batches)
            with torch.autocast("cuda", dtype=torch.float16):
                loss = torch.nn.functional.mse_loss(model(x), y) / 4
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)  # expect: INS307
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
