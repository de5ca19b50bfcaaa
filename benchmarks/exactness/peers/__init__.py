"""The engines in the table, one file each.

A peer's file imports its package at the top and exports `ROWS`: for each row of the table, which
loop answers which kind of scenario. A loop is given the scenario and a fresh model, drives the real
package the way its documentation says, and returns the trained model.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from torch import nn

from benchmarks.exactness.scenarios import Kind, Scenario

Loop = Callable[[Scenario, nn.Module], nn.Module]
Answers = Mapping[Kind, Loop]


class NotSupportedError(Exception):
    """The engine has no way to say this, which is an answer too."""


@dataclass(frozen=True)
class Peer:
    """A file of this folder, the package it needs, and the rows it fills."""

    module: str
    package: str
    rows: tuple[str, ...]

    def answers(self) -> tuple[Answers, ...]:
        """Import the adapter, and with it the package. Raises ModuleNotFoundError without it."""
        loaded: tuple[Answers, ...] = importlib.import_module(f"{__name__}.{self.module}").ROWS
        return loaded


PEERS: Final = (
    Peer("textbook", "torch", ("the textbook loop `(loss/n).backward(); if (i+1)%n==0`",)),
    Peer("accelerate", "accelerate", ("Accelerate `accumulate()`",)),
    Peer("lightning", "lightning", ("Lightning Trainer (manual for two optimizers)",)),
    Peer("fabric", "lightning", ("Fabric, its documentation's example",)),
    Peer(
        "transformers",
        "transformers",
        (
            "HF Trainer, plain model",
            "HF Trainer, model that uses `num_items_in_batch`",
            "HF Trainer, model that swallows `**kwargs`",
        ),
    ),
    Peer("composer", "composer", ("Composer, default", "Composer, token flag")),
    Peer("instep", "instep", ("**`instep.Stepper`**",)),
)
