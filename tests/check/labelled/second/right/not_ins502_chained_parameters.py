# looks like INS502: the parameters of both nets reach the optimizer through a chain
# expect: nothing
import itertools

import torch
from torch import nn

encoder = nn.Linear(784, 32)
decoder = nn.Linear(32, 784)
temperature = nn.Parameter(torch.ones(()))
everything = itertools.chain(encoder.parameters(), decoder.parameters(), [temperature])
optimizer = torch.optim.Adam(everything, lr=1e-3)

for epoch in range(20):
    for x, _ in loader:
        x = x.flatten(1)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(decoder(encoder(x) * temperature), x)
        loss.backward()
        optimizer.step()
