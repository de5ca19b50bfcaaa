import torch


def update(model, optimizer, scaler, batch, loss_fn):
    x, y = batch
    optimizer.zero_grad()
    with torch.autocast(device_type="cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_value_(model.parameters(), 0.1)  # expect-one: INS303
    scaler.unscale_(optimizer)  # expect-one: INS303
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


def train(model, loader, loss_fn, epochs=20):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**14)
    for _ in range(epochs):
        for batch in loader:
            update(model, optimizer, scaler, batch, loss_fn)
