import torch
import torch.nn.functional as F
from torch import nn


class MarginHead(nn.Module):
    def __init__(self, width, people, scale=30.0):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(people, width))
        self.scale = scale

    def forward(self, x, labels):
        cosine = F.linear(F.normalize(x), F.normalize(self.weight))
        return F.cross_entropy(self.scale * cosine, labels)


backbone = nn.Sequential(nn.Flatten(), nn.Linear(12_288, 512))
margin = MarginHead(512, 8000)  # expect-one: INS502
optimizer = torch.optim.SGD(backbone.parameters(), lr=0.1)  # expect-one: INS502
for faces, ids in loader:
    optimizer.zero_grad()
    loss = margin(backbone(faces), ids)
    loss.backward()  # expect-one: INS502
    optimizer.step()  # expect-one: INS502
