# looks like INS305: a scaler that is switched off
# expect: nothing
import instep
import torch
import torch.nn.functional as F

scaler = torch.amp.GradScaler(enabled=False)
stepper = instep.Stepper(model, optimizer, precision="fp16")
for window in stepper.windows(loader, size=8):
    for x, y in window:
        window.backward(scaler.scale(F.cross_entropy(model(x), y)), items=len(y))
