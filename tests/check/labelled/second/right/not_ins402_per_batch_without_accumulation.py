# trap 14: the scheduler counts updates, one per batch; `% 100` is only the log, and ema.step is no update
# expect: nothing
import torch


def train(net, loader, ema, epochs):
    solver = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    cycle = torch.optim.lr_scheduler.OneCycleLR(
        solver, max_lr=0.4, epochs=epochs, steps_per_epoch=len(loader)
    )
    for epoch in range(epochs):
        for i, (x, y) in enumerate(loader):
            loss = torch.nn.functional.cross_entropy(net(x), y)
            solver.zero_grad()
            loss.backward()
            solver.step()
            cycle.step()
            ema.step(net.parameters())
            if (i + 1) % 100 == 0:
                print(epoch, i, loss.item(), cycle.get_last_lr())
