import copy

import torch

base = torch.nn.Linear(32, 4)
optimizer = torch.optim.Adam(base.parameters())  # expect-one: INS502|INS503
model = copy.deepcopy(base)  # expect-one: INS502|INS503
for x, y in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()  # expect-one: INS502|INS503
    optimizer.step()  # expect-one: INS502|INS503
