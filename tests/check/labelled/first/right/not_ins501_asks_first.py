# looks like INS501: parameters without a gradient are passed over
# expect: nothing
import torch


def grad_norm(model):
    norms = []
    for name, p in model.named_parameters():
        if p.grad is None:
            continue
        norms.append(p.grad.detach().norm())
    return torch.stack(norms).norm().item() if norms else 0.0


def train(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        optimizer.zero_grad()
        print("left over", grad_norm(model))
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
