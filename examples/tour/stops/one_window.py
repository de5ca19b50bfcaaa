"""The same work done four ways, each measured against the whole batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

import instep
from examples.tour import loops
from examples.tour.loops import IGNORED, Batch
from examples.tour.show import body_of, side_by_side, table
from examples.tour.stop import Seen, TourError

WINDOW = 4
WORDS, LENGTH = 16, 12
EXACT = 1e-12

Way = Callable[[nn.Module, Optimizer], None]


@dataclass(frozen=True, slots=True)
class Measured:
    """One epoch by one loop."""

    gradients: list[Tensor]
    """The gradient that each update was made with."""
    update: Tensor
    """What the epoch added to the parameters."""

    def gradient_error(self, reference: Measured) -> float:
        """Compare the first gradients: they are taken at the same weights."""
        return relative_error(self.gradients[0], reference.gradients[0])

    def update_error(self, reference: Measured) -> float:
        """Compare what the whole epoch did."""
        return relative_error(self.update, reference.update)


def relative_error(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


def ragged_tokens() -> list[Batch]:
    """Make 10 micro-batches of padded sequences: 4 each, the last has 1; lengths vary a lot."""
    generator = torch.Generator().manual_seed(0)
    batches = []
    for index in range(10):
        sequences = 1 if index == 9 else 4
        tokens = torch.randint(WORDS, (sequences, LENGTH), generator=generator)
        longest = int(torch.randint(1, LENGTH + 1, (), generator=generator))
        lengths = torch.randint(1, longest + 1, (sequences, 1), generator=generator)
        targets = (3 * tokens + 1) % WORDS
        targets[torch.arange(LENGTH) >= lengths] = IGNORED
        batches.append((tokens, targets))
    return batches


def measured(way: Way) -> Measured:
    """Train one epoch from the same start as all others, watching the optimizer."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Embedding(WORDS, 8), nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, WORDS)
    ).double()
    optimizer = SGD(model.parameters(), lr=0.5)
    gradients: list[Tensor] = []

    def note(optimizer: Optimizer, *_: Any) -> None:
        held = [p.grad for group in optimizer.param_groups for p in group["params"]]
        gradients.append(torch.cat([gradient.flatten() for gradient in held]))

    optimizer.register_step_pre_hook(note)
    start = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    way(model, optimizer)
    end = nn.utils.parameters_to_vector(model.parameters()).detach()
    return Measured(gradients, end - start)


def measure_all() -> tuple[Measured, dict[str, Measured]]:
    """Return the whole batch's epoch, and those of the four ways."""
    data, n = ragged_tokens(), WINDOW
    ways: dict[str, Way] = {
        "textbook: loss / n, (i + 1) % n": lambda m, o: loops.textbook(m, o, data, n),
        "Stepper, items an int": lambda m, o: loops.int_items(m, instep.Stepper(m, o), data, n),
        "Stepper, items a tensor": lambda m, o: loops.tensor_items(
            m, instep.Stepper(m, o), data, n
        ),
        "Stepper, function style": lambda m, o: loops.function_style(
            m, instep.Stepper(m, o), data, n
        ),
    }
    whole = measured(lambda m, o: loops.whole_batch(m, o, data, n))
    return whole, {name: measured(way) for name, way in ways.items()}


def stop(_: Path) -> Seen:
    """Print the two loops, the data and the table of errors."""
    counts = [int(loops.counted(targets)) for _, targets in ragged_tokens()]
    print(
        f"{len(counts)} micro-batches, {WINDOW} per update, so the last window has "
        f"{len(counts) % WINDOW}.\nTokens that count in each: {counts}\n"
    )
    print(
        side_by_side(
            ("the textbook loop", body_of(loops.textbook)),
            ("stepper = instep.Stepper(model, optimizer)", body_of(loops.tensor_items)),
        )
    )
    whole, ways = measure_all()
    rows = [
        [
            name,
            str(len(way.gradients)),
            f"{way.gradient_error(whole):.1e}",
            f"{way.update_error(whole):.1e}",
        ]
        for name, way in ways.items()
    ]
    print("\nRelative error against the whole batch, in float64:\n")
    print(table(["", "updates", "first gradient", "epoch's update"], rows))
    print(
        f"\nThe whole batch makes {len(whole.gradients)} updates. The textbook loop weighs every "
        "micro-batch the same,\nhowever many tokens count in it, and never steps for a short last "
        "window."
    )
    return _seen(whole, ways)


def _seen(whole: Measured, ways: dict[str, Measured]) -> Seen:
    wrong, *exact = (way.update_error(whole) for way in ways.values())
    if max(exact) > EXACT:
        raise TourError(f"the engine is off by {max(exact):.1e}, more than {EXACT:.0e}")
    return Seen(
        f"On ragged data the textbook loop's update is off by {wrong:.0%}, "
        f"the engine's by {max(exact):.0e} at most."
    )
