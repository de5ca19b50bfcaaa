"""Fabric, as in the gradient accumulation page of its documentation.

The page's loop closes a window when `iteration % n == 0`, which is the first micro-batch, and
divides by nothing; both are kept, because this row measures what the page teaches.
"""

import logging

from lightning.fabric import Fabric
from torch import nn

from benchmarks.exactness.peers import Answers
from benchmarks.exactness.scenarios import Kind, Scenario

logging.getLogger("lightning.fabric").setLevel(logging.ERROR)


def epoch(scenario: Scenario, model: nn.Module) -> nn.Module:
    """One optimizer or several: they step together."""
    fabric = Fabric(accelerator="cpu", devices=1, precision="64-true")
    wrapped, *optimizers = fabric.setup(model, *scenario.optimizers(model))
    loader = fabric.setup_dataloaders(scenario.loader())
    for iteration, (inputs, targets) in enumerate(loader):
        is_accumulating = iteration % scenario.window != 0
        with fabric.no_backward_sync(wrapped, enabled=is_accumulating):
            fabric.backward(scenario.loss(wrapped(inputs), targets))
        if not is_accumulating:
            for optimizer in optimizers:
                if scenario.clip_norm is not None:
                    fabric.clip_gradients(wrapped, optimizer, max_norm=scenario.clip_norm)
                optimizer.step()
                optimizer.zero_grad()
    return model


ROWS: tuple[Answers, ...] = ({Kind.EPOCH: epoch, Kind.TWO_OPTIMIZERS: epoch},)
