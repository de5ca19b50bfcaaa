# looks like INS502: the target network follows the online one and is never trained
# expect: nothing
import copy

import torch

online = QNet()
target = copy.deepcopy(online).requires_grad_(False)
optimizer = torch.optim.Adam(online.parameters(), lr=1e-4)
for s, a, r, s2 in batches:
    wanted = r + 0.99 * target(s2).amax(1)
    value = online(s).gather(1, a).squeeze(1)
    loss = torch.nn.functional.smooth_l1_loss(value, wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for slow, fast in zip(target.parameters(), online.parameters()):
            slow.lerp_(fast, 0.005)
