"""The job that is made to fail: the language model of the example, and which lines it has seen.

It is run in a process of its own, by `harness`. `python -m tests.faults.job FOLDER` runs it as a
program; `INSTEP_FAULT=backward:17` then kills it there.
"""

from __future__ import annotations

import gc
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # optimizers import it at their first step; here it is there before a fork
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import instep
from examples.train_lm import IGNORED, LanguageModel, lines_of_text, padded
from instep.distributed import shard
from tests.faults.meddling import Meddling
from tests.faults.plan import Plan

LINES, BATCH, SIZE, EPOCHS = 15, 2, 3, 2
CHECKPOINT, RESULT, LOG = "run.ckpt", "result.pt", "kills.log"


class Lines(Dataset):
    """Lines of text with their numbers; some of their bytes are lost at random."""

    def __init__(self) -> None:
        self.lines = lines_of_text(LINES)

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, index: int) -> tuple[int, bytes]:
        line = bytearray(self.lines[index])
        line[int(torch.randint(len(line), (1,)))] = 32
        return index, bytes(line)


def numbered(rows: list[tuple[int, bytes]]) -> tuple[list[int], Any]:
    return [index for index, _ in rows], padded([line for _, line in rows])


class Job:
    """Everything one run has."""

    def __init__(self, *, workers: int = 0, lines: Dataset | None = None, **options: Any) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(1)
        self.model = LanguageModel(16, heads=2, layers=1)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.scheduler = torch.optim.lr_scheduler.LinearLR(self.optimizer, 1.0, 0.1, 8)
        spread = torch.distributed.is_initialized()
        self.forward = DistributedDataParallel(self.model) if spread else self.model
        self.stepper = instep.Stepper(
            self.forward, self.optimizer, scheduler=self.scheduler, clip_norm=1.0, **options
        )
        self.loader = DataLoader(
            lines or Lines(),
            batch_size=BATCH,
            shuffle=True,
            num_workers=workers,
            collate_fn=numbered,
            multiprocessing_context="fork" if workers else None,
        )
        if spread:
            self.loader = shard(self.loader)
        self.updates: list[Any] = []

    def loss(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        logits = self.forward(tokens).flatten(0, 1)
        return F.cross_entropy(logits, targets.flatten(), ignore_index=IGNORED)

    def train(self, checkpoint: Path, *, every: int = 2) -> dict[str, Any]:
        """Train to the end and return all there is to compare."""
        extra = {"seen": []}
        with self.stepper.autosave(checkpoint, every=every, extra=extra) as run:
            for epoch in self.stepper.epochs(EPOCHS):
                for window in self.stepper.windows(self.loader, size=SIZE):
                    for indices, (tokens, targets) in window:
                        window.backward(
                            self.loss(tokens, targets), items=int((targets != IGNORED).sum())
                        )
                        run.extra["seen"].extend((epoch, index) for index in indices)
                    self.updates += window.updates
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "random": torch.get_rng_state(),
            "seen": run.extra["seen"],
        }


def work(folder: str, plan: str, workers: int, fault: str = "kill") -> None:
    """Train in this process, fail as planned, and leave the result in the folder."""
    here = Path(folder)
    with Meddling(Plan.parse(plan), fault, here / LOG) as meddling:
        result = Job(workers=workers).train(here / CHECKPOINT)
    torch.save({**result, "counts": dict(meddling.counts)}, here / RESULT)


def rank_work(
    rank: int, world: int, folder: str, store: str, plan: str, victim: int, timeout: float
) -> None:
    """Train on one of several ranks; one of them fails as planned."""
    here = Path(folder)
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=timeout),
    )
    fault = "hang" if plan.startswith("hang ") else "kill"
    chosen = Plan.parse(plan.removeprefix("hang ")) if rank == victim else None
    try:
        with Meddling(chosen, fault, here / LOG) as meddling:
            result = Job().train(here / "ranks")
    except Exception as error:  # noqa: BLE001 -- whoever started it looks at the text
        (here / f"error-{rank}.txt").write_text(str(error))
        sys.exit(1)
    torch.save({**result, "counts": dict(meddling.counts)}, here / f"result-{rank}.pt")
    gc.collect()  # a DDP model must not outlive its group
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    work(sys.argv[1], os.environ.get("INSTEP_FAULT", ""), workers=0)
