import instep
import torch
import torch.nn.functional as F

scaler = torch.amp.GradScaler()
stepper = instep.Stepper(model, optimizer, precision="fp16")
for window in stepper.windows(loader, size=8):
    for x, y in window:
        loss = F.cross_entropy(model(x), y)
        window.backward(scaler.scale(loss), items=len(y))  # expect: INS305
