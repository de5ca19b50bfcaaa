# trap 15: train mode is set in another function, before every epoch
# expect: nothing
import torch


def set_mode(models, training):
    for m in models:
        m.train(training)


def train_epoch(model, loader, optimizer):
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()


@torch.no_grad()
def evaluate(model, loader):
    set_mode([model], False)
    return sum((model(x).argmax(1) == y).float().mean().item() for x, y in loader) / len(loader)


def main(model, train_loader, val_loader):
    optimizer = torch.optim.Adam(model.parameters())
    for epoch in range(10):
        set_mode([model], True)
        train_epoch(model, train_loader, optimizer)
        print(epoch, evaluate(model, val_loader))
