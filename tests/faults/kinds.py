"""Faults other than kills, each tried at a place drawn by dice, in this process.

Every function tries one and asserts that it was survived as promised; those that train on lines of
text return how many of them were lost or doubled.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import random
import signal
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import instep
from instep.checkpoint import files
from instep.errors import CheckpointError, InstepWarning
from tests.engine.faults import Faults
from tests.engine.kit import EXACT, batches, mean_loss, mlp, train_whole, update_error
from tests.faults import job
from tests.faults.harness import differences, lost_or_doubled
from tests.faults.job import IGNORED, Job, Lines
from tests.faults.meddling import Meddling
from tests.faults.plan import Plan

MICRO_BATCHES = math.ceil(job.LINES / job.BATCH)
ALL = job.EPOCHS * MICRO_BATCHES


def whole_run(folder: Path, workers: int = 0) -> dict[str, Any]:
    """Train without faults, in this process, and count what there is to fail at."""
    folder.mkdir(parents=True, exist_ok=True)
    with Meddling(None, "full") as meddling:
        result = Job(workers=workers).train(folder / job.CHECKPOINT)
    return {**result, "counts": dict(meddling.counts)}


def _lost(found: dict[str, Any], whole: dict[str, Any], where: str) -> int:
    """Require the bits of a run without faults; return how many lines were lost or doubled."""
    different = differences(found, {k: v for k, v in whole.items() if k != "counts"})
    assert not different, f"{where}: {different}"
    return lost_or_doubled(found["seen"])


def _whole_files(folder: Path) -> None:
    """No temporary file is left, and both checkpoints are whole."""
    for path in folder.iterdir():
        assert path.name in (job.CHECKPOINT, f"{job.CHECKPOINT}.previous"), path
        files.read(path)


def full_disk(folder: Path, dice: random.Random, whole: dict[str, Any]) -> int:
    """Writing fails half way: it is said, training goes on, and the last checkpoint is whole."""
    folder.mkdir()
    plan = Plan("disk", dice.randrange(whole["counts"]["disk"]))
    place = folder / job.CHECKPOINT
    found = None
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        # The first and the last checkpoint raise; in between it is a warning.
        with Meddling(plan, "full") as meddling, contextlib.suppress(CheckpointError):
            found = Job().train(place)
    _whole_files(folder)
    texts = [str(each.message) for each in said if each.category is InstepWarning]
    assert meddling.raised == 1
    if found is not None and meddling.failed == "hardlink_to":
        # A second name that cannot be made is gone around: the file is renamed first.
        assert texts == [], plan
    elif found is not None:
        assert len(texts) == 1, (plan, texts)
        assert "the disk is full" in texts[0], plan
    if found is None:
        found = Job().train(place)
    return _lost(found, whole, str(plan))


class BrokenLines(Lines):
    """Raises at one line, until it is mended."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def __getitem__(self, index: int) -> tuple[int, bytes]:
        if index == self.at:
            raise ConnectionError(f"line {index} cannot be read")
        return super().__getitem__(index)


def raising_loader(folder: Path, dice: random.Random, whole: dict[str, Any], workers: int) -> int:
    """A loader raises: all up to there is saved at once, and nothing is done twice."""
    folder.mkdir()
    place = folder / job.CHECKPOINT
    at = dice.randrange(job.LINES)
    broken = Job(workers=workers, lines=BrokenLines(at))
    try:
        broken.train(place, every=1000)
    except ConnectionError:
        saved = files.read(place).parts
        # Every micro-batch before it is in the checkpoint, the middle of a window included.
        done = saved["stepper"]["place"]["position"]["skip"] * job.BATCH
        assert len(saved["extra"]["seen"]) == done
        assert (0, at) not in saved["extra"]["seen"]
    else:
        raise AssertionError(f"line {at} did not raise")
    del broken
    gc.collect()  # its workers end now, and not in a process that is forked later
    return _lost(Job(workers=workers).train(place), whole, f"line {at}, {workers} workers")


def killed_worker(folder: Path, dice: random.Random, whole: dict[str, Any]) -> int:
    """A process that loads data is killed, as by the kernel when memory is short."""
    folder.mkdir()
    place, at = folder / job.CHECKPOINT, dice.randrange(2, ALL)
    first = Job(workers=2)
    seen = 0
    loss = first.loss

    def kills(tokens: Tensor, targets: Tensor) -> Tensor:
        nonlocal seen
        seen += 1
        if seen == at:
            iterator = first.stepper._loop.run.feed._batches
            os.kill(iterator._workers[0].pid, signal.SIGKILL)
        return loss(tokens, targets)

    first.loss = kills  # type: ignore[method-assign]
    found = None
    try:
        found = first.train(place)
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
    except (OSError, EOFError):
        # The connection to the worker broke before torch heard that it is gone, which torch then
        # raises in the middle of anything: here.
        with contextlib.suppress(RuntimeError):
            time.sleep(5)
    if found is None:
        del first
        gc.collect()
        found = Job(workers=2).train(place)
    return _lost(found, whole, f"a worker at micro-batch {at}")


# -- numbers ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def _spoiled(
    training: Job, where: str, value: float, at: int, dice: random.Random
) -> Iterator[None]:
    """Put a number where it does not belong, in one micro-batch."""
    count = -1
    loss = training.loss

    def spoiling(tokens: Tensor, targets: Tensor) -> Tensor:
        nonlocal count
        count += 1
        if count != at:
            return loss(tokens, targets)
        if where == "loss":
            return loss(tokens, targets) * value
        if where == "gradient":
            parameter = dice.choice(list(training.model.parameters()))
            place = dice.randrange(parameter.numel())
            handle = parameter.register_hook(lambda grad: _with(grad, place, value, handle))
            return loss(tokens, targets)
        place = dice.randrange(tokens.numel() * 16)
        handle = training.model.bytes.register_forward_hook(
            lambda module, given, out: _with(out, place, value, handle)
        )
        return loss(tokens, targets)

    training.loss = spoiling  # type: ignore[method-assign]
    yield
    assert count >= at


def _with(tensor: Tensor, place: int, value: float, handle: Any) -> Tensor:
    handle.remove()
    mask = torch.zeros_like(tensor).reshape(-1)
    mask[place] = 1.0
    return torch.where(mask.reshape(tensor.shape) > 0, torch.full_like(tensor, value), tensor)


def _updates(training: Job, discarded: int | None = None) -> list[Any]:
    """Train two epochs; throw this window away if asked to, after all its work was done."""
    updates = []
    for _ in range(job.EPOCHS):
        for window in training.stepper.windows(training.loader, size=job.SIZE):
            for _, (tokens, targets) in window:
                window.backward(training.loss(tokens, targets), items=(targets != IGNORED).sum())
                done = window.taken == job.SIZE or window.has_no_more
                if window.index == discarded and done:
                    window.discard()
            updates += window.updates
            for name, tensor in training.model.state_dict().items():
                assert torch.isfinite(tensor).all(), name
    return updates


def bad_number(dice: random.Random) -> None:
    """A NaN or Inf reaches one window: it is skipped, says so, and touches nothing else."""
    where = dice.choice(["input", "loss", "gradient"])
    value = dice.choice([math.nan, math.inf, -math.inf])
    at = dice.randrange(ALL)
    window = (at // MICRO_BATCHES) * math.ceil(MICRO_BATCHES / job.SIZE)
    window += (at % MICRO_BATCHES) // job.SIZE
    text = f"{value} in the {where} of micro-batch {at}"
    spoiled = Job()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with _spoiled(spoiled, where, value, at, dice):
            updates = _updates(spoiled)
    skipped = [index for index, update in enumerate(updates) if update.skipped is not None]
    assert skipped == [window], text
    assert updates[window].skipped == "non-finite", text
    assert any("is inf or NaN" in str(each.message) for each in said), text
    plain = Job()
    _updates(plain, discarded=window)
    for name, tensor in plain.model.state_dict().items():
        assert torch.equal(tensor, spoiled.model.state_dict()[name]), text
    assert spoiled.scheduler.last_epoch == plain.scheduler.last_epoch == len(updates) - 1


# -- memory ----------------------------------------------------------------------------------------


def no_memory_in_a_loop(folder: Path, dice: random.Random, whole: dict[str, Any]) -> int:
    """Memory ends somewhere in a loop: it raises, and the next run goes on from the checkpoint."""
    folder.mkdir()
    place = folder / job.CHECKPOINT
    phases = ("data", "forward", "backward", "close")
    at = dice.randrange(sum(whole["counts"][phase] for phase in phases))
    try:
        with Faults(at) as faults:
            found = Job().train(place)
    except torch.OutOfMemoryError:
        found = Job().train(place)
    return _lost(found, whole, f"operation {at} of {faults.seen}")


def no_memory_in_a_step(dice: random.Random) -> None:
    """Memory ends somewhere in a step in function style: it is replayed, and training goes on."""
    data = batches([6, 5, 7])
    start = mlp()
    expected = train_whole(start, [[batch] for batch in data], torch.optim.Adam, lr=0.01)
    model = mlp()
    stepper = instep.Stepper(model, torch.optim.Adam(model.parameters(), lr=0.01))

    def steps() -> None:
        for batch in data:
            stepper.step(batch, lambda piece: mean_loss(model, *piece), split=instep.Micro("auto"))

    with Faults(None) as counting:
        steps()
    model = mlp()
    stepper = instep.Stepper(model, torch.optim.Adam(model.parameters(), lr=0.01))
    at = dice.randrange(counting.seen)
    with Faults(at) as faults:
        steps()
    assert faults.raised == 1
    assert update_error(start, model, expected) < EXACT, at
