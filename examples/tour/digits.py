"""Real data for the tour: scikit-learn's handwritten digits, in micro-batches as ragged as life."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from sklearn.datasets import load_digits
from torch import Tensor

from examples.tour.loops import IGNORED, Batch

TEST_IMAGES = 500
LARGEST = 64


@dataclass(frozen=True, slots=True)
class Digits:
    """Images to train on, in micro-batches with some labels hidden, and images to test on."""

    batches: list[Batch]
    test: Batch

    def epoch(self, number: int) -> list[Batch]:
        """Return the micro-batches in the order of this epoch, the same for every run."""
        order = torch.randperm(
            len(self.batches), generator=torch.Generator().manual_seed(number)
        ).tolist()
        return [self.batches[index] for index in order]

    def labelled(self) -> Batch:
        """Return all training images that have a label: what the loss is a mean of."""
        images, labels = (torch.cat(part) for part in zip(*self.batches, strict=True))
        return images[labels != IGNORED], labels[labels != IGNORED]


def load() -> Digits:
    """Load the digits and group them: 2 to 64 images at a time, of which 1 to all are labelled."""
    generator = torch.Generator().manual_seed(0)
    bunch = load_digits()
    images = torch.from_numpy(bunch.data).double() / 16
    labels = torch.from_numpy(bunch.target).long()
    order = torch.randperm(len(images), generator=generator)
    images, labels = images[order], labels[order]
    train, test = slice(TEST_IMAGES, None), slice(TEST_IMAGES)
    batches = []
    rest = images[train], labels[train]
    while len(rest[0]):
        size = int(torch.randint(2, LARGEST + 1, (), generator=generator))
        batches.append((rest[0][:size], _with_hidden(rest[1][:size], generator)))
        rest = rest[0][size:], rest[1][size:]
    return Digits(batches, (images[test], labels[test]))


def _with_hidden(labels: Tensor, generator: torch.Generator) -> Tensor:
    """Keep some of the labels, at least one: the textbook loop would meet 0/0 without any."""
    kept = int(torch.randint(1, len(labels) + 1, (), generator=generator))
    hidden = torch.randperm(len(labels), generator=generator)[kept:]
    return labels.index_fill(0, hidden, IGNORED)
