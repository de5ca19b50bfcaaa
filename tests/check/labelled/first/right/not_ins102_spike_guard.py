# trap 12: a window with a spike in its loss is thrown away whole
# expect: nothing
import torch


def train(model, loader, limit):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for i, (x, y) in enumerate(loader):
        loss = torch.nn.functional.mse_loss(model(x), y)
        size = min(4, len(loader) - i // 4 * 4)
        (loss / size).backward()
        if (i + 1) % 4 == 0 or i + 1 == len(loader):
            skip = False
            if loss.item() > limit:
                skip = True
                optimizer.zero_grad()
            if not skip:
                optimizer.step()
                optimizer.zero_grad()
