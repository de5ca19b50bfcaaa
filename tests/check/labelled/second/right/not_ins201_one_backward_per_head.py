# looks like INS201: one backward per task head; the losses are summed on purpose
# expect: nothing
import torch
import torch.nn.functional as F


def train(trunk, heads, loader, weights):
    params = list(trunk.parameters())
    for head in heads.values():
        params += list(head.parameters())
    optimizer = torch.optim.Adam(params, lr=1e-4)
    for batch in loader:
        optimizer.zero_grad()
        for task, head in heads.items():
            out = head(trunk(batch["image"]))
            loss = weights[task] * F.cross_entropy(out, batch[task])
            loss.backward()
        optimizer.step()
