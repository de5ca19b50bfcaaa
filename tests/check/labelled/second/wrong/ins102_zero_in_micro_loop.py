import torch
import torch.nn.functional as F

micro_steps = 4
max_iters = 2000
model = ImageNetModel()
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, weight_decay=0.1)

for it in range(max_iters):
    lossf = 0.0
    for micro in range(micro_steps):
        x, y = get_batch("train")
        optimizer.zero_grad(set_to_none=True)  # expect: INS102
        loss = F.cross_entropy(model(x), y) / micro_steps
        loss.backward()
        lossf += loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if it % 100 == 0:
        print(it, lossf)
