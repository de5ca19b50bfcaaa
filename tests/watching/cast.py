"""Loaders and networks for particular loops."""

from __future__ import annotations

import torch
from torch import nn

from tests.watching.props import (
    WIDTH,
    Judged,
    Net,
    Padded,
    Score,
    classes,
    endless,
    ids,
    loader,
    numbers,
)


def regression():
    return loader(numbers(), numbers())


def wide():
    """Give images that are cut along their last side."""
    return loader(numbers(3, 512), numbers(3, 512))


def large():
    """Give batches that are cut into pieces, the last of them smaller."""
    return loader(numbers(), numbers(), size=13 * 120, batch=120)


def labelled():
    return loader(numbers(), classes, size=13 * 56, batch=56)


def alone():
    return loader(numbers())


def padded(padding):
    return lambda: loader(ids(6), Padded(6, padding))


def windows():
    return endless_windows(loader(ids(6), Padded(6, -100)), lambda x, y: (x, y))


def dictionaries():
    return endless_windows(
        loader(ids(6), Padded(6, -100)), lambda x, y: {"input_ids": x, "labels": y}
    )


def endless_windows(batches, made):
    stream = endless(batches)
    return [[made(*next(stream)) for _ in range(4)] for _ in range(10)]


def images():
    return loader(numbers(3, WIDTH), ids(3))


def saved():
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters())
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3)
    return {
        "model": net.state_dict(), "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(), "epoch": 0,
    }  # fmt: skip


class Colours(nn.Module):
    """A stem that is frozen, and a head."""

    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.head(self.stem(x))


class Segments(Net):
    """An output and two auxiliary ones."""

    def forward(self, x):
        out, *aux = super().forward(x)
        return {"out": out, "aux": aux}


class Critic(Score):
    """Judges what is done in a state."""

    def forward(self, state, action):
        return super().forward(state + action)


class Replay:
    """A buffer of what an agent has seen."""

    def sample(self, size):
        state = torch.randn(size, WIDTH)
        return state, state, state, torch.randn(size), torch.ones(size)


def two():
    return torch.randint(0, 2, ())


def five():
    return torch.randint(0, 5, ())


def drawn(batches):
    """Return a function that draws a batch, whatever it is asked for."""
    stream = endless(batches)
    return lambda *_: next(stream)


class Images(nn.Module):
    """Makes images out of noise."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(128, 4 * WIDTH)

    def forward(self, x):
        return self.layer(x).view(-1, 1, 4, WIDTH)


class Returned(Judged):
    """A network that gives its loss first."""

    def forward(self, x, labels):
        return super().forward(x, labels, return_dict=False)


class Translator(Net):
    """Reads one text and what there is of the other."""

    def forward(self, source, target):
        return super().forward(source) + super().forward(target)
