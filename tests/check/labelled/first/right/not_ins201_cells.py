# looks like INS201: a notebook with an inner range; the division is in a cell above
# expect: nothing
# %%
import torch

MICRO = 4
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)


def micro_loss(x, y):
    return torch.nn.functional.cross_entropy(model(x), y) / MICRO


# %%
for update in range(1000):
    optimizer.zero_grad()
    for _ in range(MICRO):
        x, y = next(stream)
        micro_loss(x, y).backward()
    optimizer.step()
