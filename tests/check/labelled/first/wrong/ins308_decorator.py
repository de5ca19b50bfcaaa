import torch
from torch import nn


class Head(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.out = nn.Linear(width, 1)

    @torch.cuda.amp.autocast(dtype=torch.bfloat16)  # expect: INS308
    def forward(self, x):
        return self.out(x)


head = Head(64)
optimizer = torch.optim.Adam(head.parameters())
for x, y in loader:
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(head(x).float(), y)
    loss.backward()
    optimizer.step()
