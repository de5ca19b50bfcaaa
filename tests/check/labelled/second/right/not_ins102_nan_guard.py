# trap 12: a guard clears and continues when the loss is not finite; the step sits in a try
# expect: nothing
import math

import torch


def train(model, loader, optimizer, criterion):
    model.train()
    for i, (x, y) in enumerate(loader):
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        if not math.isfinite(loss.item()):
            print(f"batch {i}: loss is {loss.item()}, skipped")
            optimizer.zero_grad()
            continue
        try:
            optimizer.step()
        except RuntimeError as error:
            print("step failed", error)
            optimizer.zero_grad()
            break
