import torch


def clear(optimizer):
    for group in optimizer.param_groups:
        for p in group["params"]:
            if p.grad is not None:
                p.grad.detach_()
                p.grad.zero_()  # expect-one: INS602


def train(net, loader):
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in loader:
        clear(sgd)  # expect-one: INS602
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        sgd.step()
