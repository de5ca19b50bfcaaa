# looks like INS502: `itertools.chain` hands over all three networks
# expect: nothing
import itertools

import torch

encoder, decoder, head = Encoder(), Decoder(), torch.nn.Linear(64, 10)
params = itertools.chain(encoder.parameters(), decoder.parameters(), head.parameters())
optimizer = torch.optim.Adam(params, lr=1e-3)
for x, y in loader:
    optimizer.zero_grad()
    z = encoder(x)
    loss = torch.nn.functional.mse_loss(decoder(z), x)
    loss = loss + torch.nn.functional.cross_entropy(head(z), y)
    loss.backward()
    optimizer.step()
