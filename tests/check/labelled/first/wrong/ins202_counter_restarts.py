from dataclasses import dataclass

import torch


@dataclass
class Config:
    window: int = 5
    epochs: int = 20
    lr: float = 1e-3


def fit(model, loader, cfg: Config):
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    for _ in range(cfg.epochs):
        optimizer.zero_grad()
        collected = 0
        for x, y in loader:
            loss = torch.nn.functional.binary_cross_entropy_with_logits(model(x), y)
            (loss / cfg.window).backward()  # expect-one: INS202
            collected += 1
            if collected == cfg.window:  # expect-one: INS202
                optimizer.step()  # expect-one: INS202
                optimizer.zero_grad()
                collected = 0
