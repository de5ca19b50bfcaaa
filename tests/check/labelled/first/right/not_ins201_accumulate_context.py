# trap 2: `accumulate` divides the loss and skips step, scheduler and clearing inside a window
# expect: nothing
import torch
from accelerate import Accelerator

accelerator = Accelerator(gradient_accumulation_steps=8, mixed_precision="bf16")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer)
model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)

for batch in loader:
    with accelerator.accumulate(model):
        outputs = model(**batch)
        accelerator.backward(outputs.loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
