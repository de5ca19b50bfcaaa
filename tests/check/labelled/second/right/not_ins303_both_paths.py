# trap 11: with and without a scaler, each path is complete
# expect: nothing
import torch


def step(loss, model, optimizer, scaler=None, clip=None):
    optimizer.zero_grad(set_to_none=True)
    if scaler is not None:
        scaler.scale(loss).backward()
        if clip is not None:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        scaler.step(optimizer)
        scaler.update()
    else:
        loss.backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()


def train(model, loader, criterion, amp=False, clip=None):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda") if amp else None
    for x, y in loader:
        with torch.autocast("cuda", dtype=torch.float16, enabled=amp):
            loss = criterion(model(x), y)
        step(loss, model, optimizer, scaler, clip)
