import torch
from transformers import get_linear_schedule_with_warmup

ACCUM = 4
MICRO_STEPS = 12000

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-5)
scheduler = get_linear_schedule_with_warmup(optimizer, 100, MICRO_STEPS // ACCUM)
batches = iter(repeat(train_loader))

for micro_step in range(MICRO_STEPS):
    pixels, label = next(batches)
    loss = torch.nn.functional.cross_entropy(model(pixels), label) / ACCUM
    loss.backward()
    if (micro_step + 1) % ACCUM == 0:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    scheduler.step()  # expect: INS402
