# %%
import torch
from torch import nn

net = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 2))
optimizer = torch.optim.Adam(net.parameters())

# %%
for epoch in range(20):
    for x, y in train_dl:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)  # expect-one: INS604
        loss.backward()  # expect-one: INS604
        optimizer.step()
    net.eval()  # expect-one: INS604
    with torch.inference_mode():
        hits = sum((net(x).argmax(1) == y).sum().item() for x, y in valid_dl)
    print(epoch, hits)
