"""The losses of the scenarios: what a user writes, and the sums and counts behind it."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

IGNORED = -100
CLASSES = 5


@dataclass(frozen=True)
class Term:
    """One part of a loss, a mean over its own targets."""

    name: str
    weight: float


@dataclass(frozen=True)
class TokenMean:
    """A cross-entropy averaged over the targets that are not ignored, per term."""

    terms: tuple[Term, ...] = (Term("lm", 1.0),)
    masked_by_hand: bool = False

    @property
    def width(self) -> int:
        """The number of outputs that the model needs."""
        return CLASSES * len(self.terms)

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss as training code computes it: one weighted sum of means."""
        means = self.means(outputs, targets)
        weighted = [means[term.name] * term.weight for term in self.terms]
        return torch.stack(weighted).sum() if len(weighted) > 1 else weighted[0]

    def means(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """The mean of each term. A mean over nothing is NaN, as it is for users."""
        return {
            term.name: self._mean(*self._columns(index, outputs, targets))
            for index, term in enumerate(self.terms)
        }

    def sums(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """The sum over items of each term: additive over any split of the items."""
        return {
            term.name: cross_entropy(
                *self._columns(index, outputs, targets), ignore_index=IGNORED, reduction="sum"
            )
            for index, term in enumerate(self.terms)
        }

    def counts(self, targets: Tensor) -> dict[str, Tensor]:
        """The number of items behind the mean of each term."""
        return {
            term.name: (targets[..., index] != IGNORED).sum()
            for index, term in enumerate(self.terms)
        }

    def _mean(self, logits: Tensor, labels: Tensor) -> Tensor:
        if not self.masked_by_hand:
            return cross_entropy(logits, labels, ignore_index=IGNORED)
        mask = (labels != IGNORED).to(logits.dtype)
        losses = cross_entropy(logits, labels.clamp(min=0), reduction="none")
        return (losses * mask).sum() / mask.sum()

    def _columns(self, index: int, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        logits = outputs[..., index * CLASSES : (index + 1) * CLASSES]
        return logits.flatten(0, -2), targets[..., index].flatten()


def adversarial_losses(model: nn.ModuleDict, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """Means over the tokens for a small adversarial pair: `g` maps inputs, `d` reads what it made.

    Both are computed before any update, from one pass through `g`.
    """
    labels = targets.flatten()
    made = model["g"](inputs)
    fooled = model["d"](made).flatten(0, -2)
    judged = model["d"](made.detach()).flatten(0, -2)
    return {
        "g": cross_entropy(fooled, (labels + 1) % CLASSES),
        "d": cross_entropy(judged, labels),
    }
