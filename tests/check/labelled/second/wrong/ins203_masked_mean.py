import torch
from torch import nn


def masked_nll(logits, target, pad):
    nll = nn.functional.cross_entropy(logits.transpose(1, 2), target, reduction="none")
    mask = (target != pad).float()
    return (nll * mask).sum() / mask.sum()  # expect-one: INS203


def train_translator(model, corpus, vocab, accumulate, total_updates):
    opt = torch.optim.Adam(model.parameters(), lr=7e-4, betas=(0.9, 0.98))
    feed = iter(corpus)
    for update in range(total_updates):
        opt.zero_grad()
        shown = 0.0
        for micro in range(accumulate):
            source, target = next(feed)
            logits = model(source, target[:, :-1])
            loss = masked_nll(logits, target[:, 1:], vocab.pad) / accumulate  # expect-one: INS203
            loss.backward()  # expect-one: INS203
            shown += loss.item()
        opt.step()
        if update % 200 == 0:
            print(update, shown)
