import torch
import torch.nn.functional as F


def info_nce(a, b, temperature=0.07):
    a, b = F.normalize(a, dim=-1), F.normalize(b, dim=-1)
    logits = a @ b.t() / temperature
    labels = torch.arange(len(a), device=a.device)
    return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2


def train(image_tower, text_tower, pairs, updates, accumulate=8):
    params = [*image_tower.parameters(), *text_tower.parameters()]
    optimizer = torch.optim.AdamW(params, lr=5e-4)
    for _ in range(updates):
        optimizer.zero_grad()
        for _ in range(accumulate):
            image, text = next(pairs)
            loss = info_nce(image_tower(image), text_tower(text))  # expect-one: INS207
            (loss / accumulate).backward()  # expect-one: INS207
        optimizer.step()
