# looks like INS303: unscale and clip only where the window closes
# expect: nothing
import torch


def train(model, feed, loss_fn, updates, n=4):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for _ in range(updates):
        optimizer.zero_grad()
        for micro in range(n):
            x, y = next(feed)
            with torch.autocast("cuda", dtype=torch.float16):
                loss = loss_fn(model(x), y) / n
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
