"""The peers, each with the least that its documentation asks for.

All of them iterate over the same list of tensors: what is compared is the loop, not the loader.
"""

import importlib
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.overhead.measure import Batch, Contestant, Pass
from benchmarks.overhead.plain import make_model


def fabric(size: int) -> Pass:
    """`no_backward_sync` and `fabric.backward`; the window closes on its last micro-batch."""
    from lightning.fabric import Fabric

    engine = Fabric(accelerator="cpu", devices=1)
    model, optimizer = engine.setup(*make_model())

    def run(batches: Sequence[Batch]) -> None:
        for index, (inputs, labels, _) in enumerate(batches, start=1):
            is_accumulating = index % size != 0
            with engine.no_backward_sync(model, enabled=is_accumulating):
                loss = cross_entropy(model(inputs), labels)
                engine.backward(loss / size)
            if not is_accumulating:
                optimizer.step()
                optimizer.zero_grad()

    return run


def accelerate(size: int) -> Pass:
    """`accumulate()` around the body."""
    from accelerate import Accelerator

    engine = Accelerator(gradient_accumulation_steps=size, cpu=True)
    model, optimizer = engine.prepare(*make_model())

    def run(batches: Sequence[Batch]) -> None:
        for inputs, labels, _ in batches:
            with engine.accumulate(model):
                loss = cross_entropy(model(inputs), labels)
                engine.backward(loss)
                optimizer.step()
                optimizer.zero_grad()

    return run


def lightning_trainer(size: int) -> Pass:
    """`accumulate_grad_batches`, with loggers, checkpoints, bars and summaries switched off."""
    import lightning

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"lightning\..*")
    net, optimizer = make_model()

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
            inputs, labels, _ = batch
            return cross_entropy(self.net(inputs), labels)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return optimizer

    class Batches:
        """A list would be taken for a list of loaders, and a DataLoader costs time of its own."""

        def __init__(self, batches: Sequence[Batch]) -> None:
            self.batches = batches

        def __len__(self) -> int:
            return len(self.batches)

        def __iter__(self) -> Iterator[Batch]:
            return iter(self.batches)

    module = Module()

    def run(batches: Sequence[Batch]) -> None:
        trainer: Any = lightning.Trainer(
            accelerator="cpu",
            devices=1,
            max_epochs=1,
            accumulate_grad_batches=size,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(module, Batches(batches))

    return run


MAKERS: tuple[tuple[str, str, Callable[[int], Pass], bool], ...] = (
    ("Fabric", "lightning", fabric, False),
    ("Accelerate", "accelerate", accelerate, False),
    ("Lightning Trainer", "lightning", lightning_trainer, True),
)


def installed(size: int) -> tuple[list[Contestant], list[str]]:
    """The contestants whose package is here, and the names of the others."""
    present, missing = [], []
    for name, package, make, has_setup in MAKERS:
        try:
            importlib.import_module(package)
        except ModuleNotFoundError:
            missing.append(name)
        else:
            present.append(Contestant(name, make(size), has_setup=has_setup))
    return present, missing
