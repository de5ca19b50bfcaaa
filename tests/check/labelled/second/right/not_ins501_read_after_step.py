# trap 17: gradients are read after the step and before they are cleared
# expect: nothing
import torch


def train(model, loader, writer):
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for i, (x, y) in enumerate(loader):
        opt.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        for name, p in model.named_parameters():
            if p.grad is not None:
                writer.add_histogram(f"grad/{name}", p.grad, i)
                writer.add_scalar(f"norm/{name}", p.grad.norm(), i)
