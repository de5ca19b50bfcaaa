# looks like INS207: two passes, the coupled loss sees the whole batch, undivided on purpose
# expect: nothing
import torch
import torch.nn.functional as F


def contrastive(z, temperature=0.1):
    z = F.normalize(z, dim=-1)
    left, right = z.chunk(2)
    logits = left @ right.t() / temperature
    return F.cross_entropy(logits, torch.arange(len(left), device=z.device))


def update(encoder, optimizer, batch, chunk):
    optimizer.zero_grad()
    with torch.no_grad():
        z = torch.cat([encoder(part) for part in batch.split(chunk)])
    z.requires_grad_(True)
    loss = contrastive(z)
    (grads,) = torch.autograd.grad(loss, z)
    for part, grad in zip(batch.split(chunk), grads.split(chunk)):
        encoder(part).backward(grad)
    optimizer.step()
    return loss.item()


def train(encoder, loader):
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.03)
    for views in loader:
        print(update(encoder, optimizer, views, chunk=64))
