# looks like INS207: the coupled loss is computed over all embeddings of the window
# expect: nothing
import torch
import torch.nn.functional as F

opt = torch.optim.AdamW(tower.parameters(), lr=1e-4)
for left, right in pairs:
    opt.zero_grad()
    a = F.normalize(torch.cat([tower(part) for part in left.split(64)]), dim=-1)
    b = F.normalize(torch.cat([tower(part) for part in right.split(64)]), dim=-1)
    logits = a @ b.t() / 0.05
    loss = F.cross_entropy(logits, torch.arange(len(logits)))
    loss.backward()
    opt.step()
