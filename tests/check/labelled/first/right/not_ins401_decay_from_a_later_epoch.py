# looks like INS401: the decay waits for an epoch that comes after the first
# expect: nothing
import argparse

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--first-epoch", type=int, default=0)
parser.add_argument("--decay-from", type=int, default=1)
parser.add_argument("--epochs", type=int, default=6)
args = parser.parse_args()

optimizer = torch.optim.Adam(model.parameters(), lr=3e-5)
decay = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.7)
for epoch in range(args.first_epoch, args.epochs):
    if epoch >= args.decay_from:
        decay.step()
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
