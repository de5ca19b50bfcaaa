"""One GPU, from the tables of the repository's own benchmark (`make bench-gpu`).

A micro-batch of the GPT takes a fixed time (its weights are read and its gradients written,
whatever the number of tokens) and one for its arithmetic. Both are fitted to windows of 512 and of
2,048 tokens; the window of 1,024 is predicted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.report import README

if TYPE_CHECKING:
    from collections.abc import Mapping

WIDTH, LAYERS, WORDS, LENGTH = 2048, 12, 32768, 2048
MICRO_BATCHES = 8
WAY = "Stepper(fused, capture), fuse"
LEAST_WAY = "Stepper(fused, capture)"
"""The way that holds the least besides parameters, gradients and states of the optimizer."""
FITTED_TOKENS = (512, 2048)
BLOCKS = 12 * WIDTH * WIDTH * LAYERS
PARAMETERS = BLOCKS + 2 * WORDS * WIDTH + LENGTH * WIDTH
"""Without those of norms, which are few."""


@dataclass(frozen=True)
class Gpu:
    """What one GPU takes for the GPT."""

    fixed: float
    """Seconds of a micro-batch of no tokens."""
    rate: float
    """Arithmetic operations in a second."""
    close: float
    """Seconds of the update."""

    def micro(self, tokens: int) -> float:
        """Return the seconds of one micro-batch."""
        return self.fixed + operations(tokens) / self.rate

    def window(self, tokens: int) -> float:
        """Return the seconds of a window on this GPU alone."""
        return MICRO_BATCHES * self.micro(tokens) + self.close


def operations(tokens: int) -> float:
    """Return the arithmetic of one sequence, forward and backward: matrices, and attention."""
    matrices = 6 * (BLOCKS + WORDS * WIDTH) * tokens
    return matrices + 6 * LAYERS * WIDTH * tokens**2  # causal: half of the pairs


def figures(text: str | None = None) -> dict[str, dict[str, tuple[float, float]]]:
    """Return milliseconds and GiB of every way, by section, from the tables of the README."""
    text = README.read_text(encoding="utf-8") if text is None else text
    found: dict[str, dict[str, tuple[float, float]]] = {}
    sections = re.findall(r"<!-- begin gpu-([\w-]+) -->(.*?)<!-- end", text, re.DOTALL)
    for name, body in sections:
        rows = [line.strip("| ").split(" | ") for line in body.strip().splitlines()]
        found[name] = {
            row[0]: (float(row[1]), float(row[-1]))
            for row in rows
            if len(row) > 2 and _is_number(row[1]) and _is_number(row[-1])
        }
    return found


def fitted(found: Mapping[str, Mapping[str, tuple[float, float]]]) -> Gpu:
    """Return the GPU that windows of the fewest and the most tokens show."""
    close = found["close"]["Stepper(fused=True), the whole close"][0] / 1e3
    few, many = FITTED_TOKENS
    took = {
        tokens: (found[f"gpt-{tokens}"][WAY][0] / 1e3 - close) / MICRO_BATCHES
        for tokens in FITTED_TOKENS
    }
    rate = (operations(many) - operations(few)) / (took[many] - took[few])
    return Gpu(took[few] - operations(few) / rate, rate, close)


def _is_number(text: str) -> bool:
    return re.fullmatch(r"\d+(\.\d+)?", text.strip()) is not None
