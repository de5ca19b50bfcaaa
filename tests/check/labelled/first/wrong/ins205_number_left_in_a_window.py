import torch.nn.functional as F
from instep import Stepper

stepper = Stepper(model, optimizer, precision="bf16")
for epoch in stepper.epochs(3):
    with stepper.windows(loader, size=4) as windows:
        for window in windows:
            for tokens, targets in window:
                loss = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
                window.backward(loss / 4, items=targets.numel())  # expect: INS205
