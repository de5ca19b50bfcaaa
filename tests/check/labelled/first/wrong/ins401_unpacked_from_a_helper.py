import torch


def build(model, warmup):
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / warmup))
    return optimizer, scheduler


def fit(model, loader, epochs):
    optimizer, scheduler = build(model, warmup=1000)
    for _ in range(epochs):
        for batch in loader:
            outputs = model(**batch)
            outputs.loss.backward()
            scheduler.step()  # expect: INS401
            optimizer.step()
            optimizer.zero_grad()
