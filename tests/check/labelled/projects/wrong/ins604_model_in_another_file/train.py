import torch
from nets.small import Small


def accuracy(net, held_out):
    net.eval()  # expect: INS604
    with torch.no_grad():
        return sum((net(x).argmax(1) == y).sum().item() for x, y in held_out)


def main(loader, held_out):
    net = Small()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net.train()
    for _ in range(10):
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()
        print(accuracy(net, held_out))
