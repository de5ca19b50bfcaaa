# looks like INS503: the new head is handed to the optimizer as a group of its own
# expect: nothing
import torch
from torch import nn

net = nn.Sequential(nn.Linear(64, 100), nn.ReLU())
head = nn.Linear(100, 10)
optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.05)


def run(loader):
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(head(net(x)), y)
        loss.backward()
        optimizer.step()


run(first_task)
head = nn.Linear(100, 20)
optimizer.add_param_group({"params": head.parameters()})
run(second_task)
