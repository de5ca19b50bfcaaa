# looks like INS501: frozen parameters have no gradient, and the edit asks first
# expect: nothing
import torch
from torch import nn

model = load_backbone()
for p in model.stem.parameters():
    p.requires_grad = False
trainable = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.SGD(trainable, lr=0.01)

for x, y in loader:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    for p in model.parameters():
        if p.grad is None:
            continue
        p.grad.clamp_(-1, 1)
    optimizer.step()
