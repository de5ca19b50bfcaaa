# trap 15: no mode is ever set, and a new model needs none
# expect: nothing
import torch
from torch import nn

model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(2000):
    x = torch.rand(64, 2)
    y = (x[:, :1] * x[:, 1:]).sin()
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 200 == 0:
        with torch.no_grad():
            print(step, nn.functional.mse_loss(model(x), y).item())
