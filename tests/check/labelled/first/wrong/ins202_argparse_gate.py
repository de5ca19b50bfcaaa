import argparse

import torch
from tqdm import tqdm


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--grad-accum", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=5)
    return parser.parse_args()


def main(model, loader):
    args = parse()
    opt = torch.optim.Adam(model.parameters(), lr=1e-4)
    opt.zero_grad()
    for epoch in range(args.epochs):
        for step, (x, y) in enumerate(tqdm(loader), start=1):
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss = loss / args.grad_accum
            loss.backward()  # expect-one: INS202
            if step % args.grad_accum == 0:  # expect-one: INS202
                opt.step()  # expect-one: INS202
                opt.zero_grad()
