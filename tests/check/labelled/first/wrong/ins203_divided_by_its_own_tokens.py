import torch
import torch.nn.functional as F


def update(model, optimizer, batches):
    optimizer.zero_grad()
    for ids, labels in batches:
        logits = model(ids)[:, :-1]
        wanted = labels[:, 1:]
        nll = F.cross_entropy(logits.transpose(1, 2), wanted, reduction="none")
        keep = (wanted != -100).float()
        n_tokens = keep.sum()
        loss = (nll * keep).sum() / n_tokens  # expect-one: INS203
        loss = loss / len(batches)  # expect-one: INS203
        loss.backward()  # expect-one: INS203
    optimizer.step()


def train(model, windows):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for batches in windows:
        update(model, optimizer, batches)
