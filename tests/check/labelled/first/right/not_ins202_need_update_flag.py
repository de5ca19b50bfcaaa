# looks like INS202: a flag computed early knows the last batch and the size of its window
# expect: nothing
from dataclasses import dataclass

import torch


@dataclass
class Settings:
    accum: int = 4
    lr: float = 1e-3


def train_epoch(model, loader, optimizer, settings: Settings):
    last_index = len(loader) - 1
    last_size = len(loader) % settings.accum or settings.accum
    last_start = len(loader) - last_size
    optimizer.zero_grad()
    for index, (ids, labels) in enumerate(loader):
        need_update = index == last_index or (index + 1) % settings.accum == 0
        size = last_size if index >= last_start else settings.accum
        loss, logits = model(ids, labels=labels, return_dict=False)
        (loss / size).backward()
        if not need_update:
            continue
        optimizer.step()
        optimizer.zero_grad()
