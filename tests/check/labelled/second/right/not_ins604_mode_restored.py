# looks like INS604: the evaluation puts back the mode it found
# expect: nothing
import torch


@torch.inference_mode()
def estimate_loss(model, loader, loss_fn):
    was_training = model.training
    model.eval()
    losses = [loss_fn(model(x), y).item() for x, y in loader]
    model.train(was_training)
    return sum(losses) / len(losses)


def train(model, feed, val_loader, loss_fn, iters):
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
    model.train()
    for it in range(iters):
        x, y = next(feed)
        opt.zero_grad()
        loss_fn(model(x), y).backward()
        opt.step()
        if it % 250 == 0:
            print(it, estimate_loss(model, val_loader, loss_fn))
