# looks like INS502: the normalisation behind the encoder has nothing that could be trained
# expect: nothing
import torch
from torch import nn

encoder, even = nn.Linear(8, 8), nn.BatchNorm1d(8, affine=False)
optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)
for x, _ in loader:
    optimizer.zero_grad()
    nn.functional.mse_loss(even(encoder(x)), x).backward()
    optimizer.step()
