# trap 7: token sums, divided by the tokens of the whole window
# expect: nothing
import torch
import torch.nn.functional as F


def update(model, optimizer, window):
    n_tokens = sum((labels[:, 1:] != -100).sum() for _, labels in window)
    optimizer.zero_grad()
    for ids, labels in window:
        logits = model(ids)[:, :-1]
        loss = F.cross_entropy(
            logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100, reduction="none"
        )
        loss = loss.sum() / n_tokens
        loss.backward()
    optimizer.step()
