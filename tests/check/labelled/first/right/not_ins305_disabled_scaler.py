# looks like INS305: the scaler may be disabled, but every call goes through it
# expect: nothing
import argparse

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--amp", action="store_true")
args = parser.parse_args()
scaler = torch.amp.GradScaler("cuda", enabled=args.amp)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", enabled=args.amp):
        loss = torch.nn.functional.cross_entropy(net(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
