# looks like INS401: a plateau scheduler follows the validation loss, once per epoch
# expect: nothing
import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau


def main(model, train_loader, val_loader, criterion, epochs):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scheduler = ReduceLROnPlateau(optimizer, mode="min", patience=3)
    val_loss = validate(model, val_loader, criterion)
    for epoch in range(epochs):
        scheduler.step(val_loss)
        model.train()
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
        val_loss = validate(model, val_loader, criterion)


@torch.no_grad()
def validate(model, loader, criterion):
    model.eval()
    total = sum(criterion(model(x), y).item() for x, y in loader)
    model.train()
    return total / len(loader)
