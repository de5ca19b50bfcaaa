import torch
from transformers import get_cosine_schedule_with_warmup

n, updates = 8, 3000
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
lr_sched = get_cosine_schedule_with_warmup(optimizer, 100, num_training_steps=updates)

for i in range(n * updates):
    ids, labels = next(batches)
    loss = torch.nn.functional.cross_entropy(model(ids), labels)
    (loss / n).backward()
    lr_sched.step()  # expect: INS402
    boundary = (i + 1) % n == 0
    if not boundary:
        continue
    optimizer.step()
    optimizer.zero_grad()
