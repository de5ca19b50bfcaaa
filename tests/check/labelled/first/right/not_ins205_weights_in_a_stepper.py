# looks like INS205: weights and means of terms that have the value of a window's size
# expect: nothing
import instep
import torch
import torch.nn.functional as F

optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
stepper = instep.Stepper(model, optimizer, precision="bf16")
for epoch in stepper.epochs(args.epochs):
    running = 0.0
    for window in stepper.windows(loader, size=2):
        for x, y in window:
            loss = 0.5 * F.cross_entropy(model(x), y) + F.mse_loss(model(x), y) / 2
            window.backward(loss, items=len(y))
        running += window.loss
    for window in stepper.windows(loader, size=4):
        for x, y in window:
            window.backward(0.25 * F.cross_entropy(model(x), y), items=len(y))
    for window in stepper.windows(loader, size=3):
        for x, y in window:
            a, b, c = heads(model(x))
            loss = (F.mse_loss(a, y) + F.mse_loss(b, y) + F.mse_loss(c, y)) / 3
            window.backward(loss, items=len(y))
