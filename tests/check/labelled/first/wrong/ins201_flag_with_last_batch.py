import argparse

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--accum", type=int, default=4)
args = parser.parse_args()

net = torch.nn.Linear(128, 10)
sgd = torch.optim.SGD(net.parameters(), lr=0.05)

for epoch in range(30):
    sgd.zero_grad()
    for i, (x, y) in enumerate(loader):
        is_update = (i + 1) % args.accum == 0 or i + 1 == len(loader)
        loss = torch.nn.functional.cross_entropy(net(x), y)  # expect-one: INS201
        loss.backward()  # expect-one: INS201
        if is_update:
            sgd.step()
            sgd.zero_grad()
