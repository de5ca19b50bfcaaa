# looks like INS301: the clip is inside the micro loop's body, but behind the gate
# expect: nothing
import torch


def train(model, feed, loss_fn, total, n=4, clip=1.0):
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for i in range(total * n):
        x, y = next(feed)
        loss = loss_fn(model(x), y) / n
        loss.backward()
        if (i + 1) % n != 0:
            continue
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        opt.step()
        opt.zero_grad()
