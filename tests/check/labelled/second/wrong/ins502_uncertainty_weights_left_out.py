import torch
from torch import nn
import torch.nn.functional as F

trunk = nn.Sequential(nn.Linear(64, 128), nn.ReLU())
depth_head = nn.Linear(128, 1)
class_head = nn.Linear(128, 13)
log_vars = nn.Parameter(torch.zeros(2))  # expect-one: INS502

optimizer = torch.optim.Adam(  # expect-one: INS502
    [*trunk.parameters(), *depth_head.parameters(), *class_head.parameters()], lr=1e-4
)

for epoch in range(60):
    for x, depth, cls in loader:
        h = trunk(x)
        l_depth = F.l1_loss(depth_head(h).squeeze(1), depth)
        l_class = F.cross_entropy(class_head(h), cls)
        losses = torch.stack([l_depth, l_class])
        loss = (torch.exp(-log_vars) * losses + log_vars).sum()
        optimizer.zero_grad()
        loss.backward()  # expect-one: INS502
        optimizer.step()  # expect-one: INS502
