"""How do I accumulate two losses that are means over different things?

Name them. Words and boxes are counted separately, and each term is exact over the whole window.
Told the counts ahead (`count=`), the stepper needs one gradient buffer and one backward; without,
it keeps a buffer per term. Both give the same update.

Before:                                                 After:

    loss = lm + 0.5 * box                                   window.backward(
    (loss / n).backward()  # wrong for both                     {"lm": lm, "box": box}, items={...},
                                                                weight={"box": 0.5})
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD

import instep

Batch = dict[str, Tensor]


class Reader(nn.Module):
    """One trunk, two heads: a word for every position, a box for some."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, 16), nn.Tanh())
        self.word, self.box = nn.Linear(16, 10), nn.Linear(16, 4)

    def forward(self, batch: Batch) -> Batch:
        """Return the mean loss over words, and the mean loss over boxes."""
        seen = self.trunk(batch["x"])
        has_box = batch["has_box"]
        return {
            "lm": F.cross_entropy(self.word(seen), batch["words"]),
            "box": F.l1_loss(self.box(seen[has_box]), batch["boxes"][has_box]),
        }


def counts(batch: Batch) -> dict[str, int]:
    """Return what each loss is a mean of; a box is four numbers."""
    return {"lm": len(batch["words"]), "box": 4 * int(batch["has_box"].sum())}


def batches() -> list[Batch]:
    torch.manual_seed(0)
    made = []
    for words, boxes in ((12, 1), (3, 3), (9, 0), (5, 2)):
        made.append(
            {
                "x": torch.randn(words, 6).double(),
                "words": torch.randint(10, (words,)),
                "boxes": torch.randn(words, 4).double(),
                "has_box": torch.arange(words) < boxes,
            }
        )
    return made


def fresh() -> tuple[Reader, SGD]:
    torch.manual_seed(1)
    model = Reader().double()
    return model, SGD(model.parameters(), lr=0.5)


def main() -> None:
    data, weight = batches(), {"box": 0.5}
    parameters = {}
    for name, count in {"counted as they come": None, "counted ahead": counts}.items():
        model, optimizer = fresh()
        stepper = instep.Stepper(model, optimizer)
        for window in stepper.windows(data, size=4, count=count):
            for batch in window:
                window.backward(model(batch), items=counts(batch), weight=weight)
        parameters[name] = nn.utils.parameters_to_vector(model.parameters()).detach()
        terms = " + ".join(
            f"{weight.get(term, 1.0):g} · {term} {loss:.4f}" for term, loss in window.losses.items()
        )
        print(f"{name}: loss {window.loss:.4f} = {terms}")

    model, optimizer = fresh()
    whole = model({key: torch.cat([batch[key] for batch in data]) for key in data[0]})
    loss = whole["lm"] + 0.5 * whole["box"]
    loss.backward()
    optimizer.step()
    reference = nn.utils.parameters_to_vector(model.parameters()).detach()
    print(f"one batch: loss {float(loss.detach()):.4f}")
    for name, found in parameters.items():
        print(f"distance from one batch, {name}: {float((found - reference).norm()):.1e}")


if __name__ == "__main__":
    main()
