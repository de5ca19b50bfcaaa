# trap 2: inside accumulate() only the logged number is divided, not the loss
# expect: nothing
import torch
from accelerate import Accelerator

accelerator = Accelerator(gradient_accumulation_steps=2)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

for epoch in range(3):
    shown = 0.0
    for step, (x, y) in enumerate(loader):
        with accelerator.accumulate(model):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            shown += loss.item() / accelerator.gradient_accumulation_steps
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    accelerator.print(epoch, shown)
