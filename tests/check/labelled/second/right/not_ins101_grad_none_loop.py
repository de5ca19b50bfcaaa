# trap 4: the gradients are dropped by hand, parameter by parameter
# expect: nothing
import torch


def fit(model, loader, epochs=3, lr=1e-2):
    opt = torch.optim.SGD(model.parameters(), lr=lr)
    for _ in range(epochs):
        for x, y in loader:
            for p in model.parameters():
                p.grad = None
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            opt.step()


def fit_by_module(model, loader):
    solver = torch.optim.Adam(model.parameters())
    for x, y in loader:
        model.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        solver.step()
