import torch
from torch import nn

model = nn.LSTM(16, 64, batch_first=True)
readout = nn.Linear(64, 1)
params = list(model.parameters()) + list(readout.parameters())
optimizer = torch.optim.Adam(params, lr=1e-3)

for epoch in range(40):
    for window, target in series_loader:
        optimizer.zero_grad()  # expect-one: INS106
        hidden, _ = model(window)
        loss = (readout(hidden[:, -1]) - target).abs().mean()
        optimizer.zero_grad()  # expect-one: INS106
        loss.backward()
        optimizer.step()
