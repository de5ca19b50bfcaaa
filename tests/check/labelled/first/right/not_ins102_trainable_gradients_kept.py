# looks like INS102: what is cleared between two attacks was kept, and is put back
# expect: nothing
import torch


class Perturbation:
    def __init__(self, net):
        self.net = net
        self.kept = {}

    def keep(self):
        for name, weight in self.net.named_parameters():
            if weight.requires_grad:
                self.kept[name] = weight.grad.clone()

    def put_back(self):
        for name, weight in self.net.named_parameters():
            if weight.requires_grad:
                weight.grad = self.kept[name]


def train(net, loader, every, attacks=3):
    perturbation = Perturbation(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-5)
    optimizer.zero_grad()
    for done, (x, y) in enumerate(loader, start=1):
        loss = torch.nn.functional.cross_entropy(net(x), y) / every
        loss.backward()
        perturbation.keep()
        for attack in range(attacks):
            if attack < attacks - 1:
                net.zero_grad()
            else:
                perturbation.put_back()
            loss = torch.nn.functional.cross_entropy(net(x), y) / every
            loss.backward()
        if done % every == 0 or done == len(loader):
            optimizer.step()
            optimizer.zero_grad()
