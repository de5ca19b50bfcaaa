# trap 12: what a failed batch left behind is cleared in the handler
# expect: nothing
import torch


def train(model, optimizer, loader):
    skipped = 0
    for x, y in loader:
        try:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        except torch.cuda.OutOfMemoryError:
            optimizer.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()
            skipped += 1
    return skipped
