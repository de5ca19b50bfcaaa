# looks like INS202: a counter difference that runs on from epoch to epoch
# expect: nothing
import torch
import torch.nn.functional as F

opt = torch.optim.Adam(model.parameters(), lr=1e-4)
seen = last_update = 0
for epoch in range(epochs):
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        (loss / 3).backward()
        seen += 1
        if seen - last_update >= 3:
            opt.step()
            opt.zero_grad()
            last_update = seen
