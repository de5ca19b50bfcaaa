# looks like INS401: a timm scheduler is told the epoch, so the order does not matter
# expect: nothing
import torch
from timm.scheduler import CosineLRScheduler


def train(model, loader, criterion, epochs=100):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    lr_scheduler = CosineLRScheduler(optimizer, t_initial=epochs, warmup_t=5)
    for epoch in range(epochs):
        lr_scheduler.step(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
