import torch
import torch.nn.functional as F


def train(vision, language, batches, updates, micro):
    params = [*vision.parameters(), *language.parameters()]
    optimizer = torch.optim.AdamW(params, lr=5e-4)
    for _ in range(updates):
        optimizer.zero_grad()
        for _ in range(micro):
            images, texts = next(batches)
            a = F.normalize(vision(images), dim=-1)
            b = F.normalize(language(texts), dim=-1)
            logits = a @ b.t() / 0.07
            labels = torch.arange(len(logits), device=logits.device)
            loss = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2  # expect-one: INS207
            (loss / micro).backward()  # expect-one: INS207
        optimizer.step()
