import torch
from torch.optim import lr_scheduler


def make_schedule(optimizer, name):
    if name == "steps":
        return lr_scheduler.StepLR(optimizer, step_size=10)
    elif name == "decay":
        return lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
    raise ValueError(name)


def main(args, model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    schedule = make_schedule(optimizer, args.schedule)
    for epoch in range(args.epochs):
        schedule.step()  # expect: INS401
        for x, y in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
