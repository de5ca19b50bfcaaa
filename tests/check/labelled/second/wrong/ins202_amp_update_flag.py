import torch


def train_one_epoch(model, criterion, loader, optimizer, scaler, n_accum=3):
    model.train()
    optimizer.zero_grad(set_to_none=True)
    for step, (img, seg) in enumerate(loader):
        update_now = (step + 1) % n_accum == 0  # expect-one: INS202
        with torch.autocast(device_type="cuda", dtype=torch.float16):
            loss = criterion(model(img.cuda()), seg.cuda())
        scaler.scale(loss / n_accum).backward()  # expect-one: INS202
        if not update_now:
            continue
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 12.0)
        scaler.step(optimizer)  # expect-one: INS202
        scaler.update()
        optimizer.zero_grad(set_to_none=True)


def main(model, criterion, loader, epochs=100):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.99, nesterov=True)
    scaler = torch.amp.GradScaler("cuda")
    for _ in range(epochs):
        train_one_epoch(model, criterion, loader, optimizer, scaler)
