# looks like INS604: the function that evaluates ends in train mode
# expect: nothing
import torch


@torch.no_grad()
def estimate(model, batches):
    model.eval()
    losses = [torch.nn.functional.cross_entropy(model(x), y).item() for x, y in batches]
    model.train()
    return sum(losses) / len(losses)


def train(model, loader, valid):
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, (x, y) in enumerate(loader):
        if step % 200 == 0:
            print(estimate(model, valid))
        opt.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
