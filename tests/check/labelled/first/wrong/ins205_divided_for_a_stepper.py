import instep
import torch
import torch.nn.functional as F


def train(args, model, loader):
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    stepper = instep.Stepper(model, optimizer, clip_norm=1.0)
    for window in stepper.windows(loader, size=args.accumulation_steps):
        for x, y in window:
            loss = F.cross_entropy(model(x), y)
            loss = loss / args.accumulation_steps
            window.backward(loss, items=len(y))  # expect: INS205
        print(window.loss)
