# looks like INS601: validation has no graph to keep
# expect: nothing
import torch


@torch.no_grad()
def validate(model, loader):
    model.eval()
    total = 0
    for x, y in loader:
        total += torch.nn.functional.cross_entropy(model(x), y)
    return total / len(loader)


def fit(model, train, valid, epochs):
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(epochs):
        model.train()
        for x, y in train:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        print(validate(model, valid))
