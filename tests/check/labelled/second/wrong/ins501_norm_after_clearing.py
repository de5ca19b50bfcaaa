import torch


def report(model):
    total = 0.0
    for p in model.parameters():
        total += p.grad.norm().item() ** 2  # expect: INS501
    return total**0.5


def train(model, loader, epochs):
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            opt.step()
            opt.zero_grad()
            print(loss.item(), report(model))
