"""An interrupt inside of a save that a rank catches, and goes on: it is told so, and the others."""

from __future__ import annotations

import os
import time
from functools import partial

import pytest
import torch

import instep
from instep.checkpoint import folders, shards
from instep.engine.ranks.exchange import Exchange
from instep.errors import CheckpointError, WindowError
from tests.distributed.kit import dealt, spread, values
from tests.engine.kit import mean_loss, mlp

SIZES = [[3, 4, 1, 2], [2, 3, 2, 1]]


def interrupt(*_, **__):
    raise KeyboardInterrupt


def interrupt_after(function):
    """It comes while this rank waits, and is raised when it no longer does."""

    def run(*args, **options):
        function(*args, **options)
        raise KeyboardInterrupt

    return run


WHERE = {
    "the tensors": (shards, "save"),
    "the round": (Exchange, "_gather"),
    "its own part": (folders.Write, "finish"),
}


def caught_in_a_save(rank, world, kind, where, path, again):
    """Rank 1 is interrupted in a save between two windows, catches it, and goes on."""
    plain = mlp()
    model = spread(plain, kind)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    said = []

    def loop():
        for window in stepper.windows(dealt(SIZES)[rank], size=2):
            for x, y in window:
                window.backward(mean_loss(model, x, y), items=len(y))

    loop()
    before = values(plain)
    begun = time.monotonic()
    with pytest.MonkeyPatch.context() as patch:
        if rank == 1:
            owner, name = WHERE[where]
            late = interrupt_after(getattr(owner, name))
            patch.setattr(owner, name, late if where == "the round" else interrupt)
        try:
            stepper.save(path)
        except KeyboardInterrupt:
            said.append("interrupted")
        except WindowError as error:
            said.append(str(error))
    if rank == 1:
        for call in [loop, partial(stepper.save, path), loop][: 1 + 2 * again]:
            with pytest.raises(WindowError) as caught:
                call()
            said.append(str(caught.value))
        # Whole parameters would need the other rank.
        assert kind == "fsdp" or values(plain) == before
    return said, time.monotonic() - begun


@pytest.mark.parametrize(
    ("kind", "where", "again"),
    [
        ("ddp", "the tensors", False),
        ("ddp", "the tensors", True),
        ("ddp", "the round", False),
        ("ddp", "its own part", False),
        ("fsdp", "the tensors", True),
    ],
)
def test_who_goes_on_is_told_that_it_cannot_and_the_others_why(two, tmp_path, kind, where, again):
    path = str(tmp_path / "run")
    # The group of a sharded model stays open in a process that does not end, as these do not.
    limit = 4.0 if kind == "fsdp" else 40.0
    case = (caught_in_a_save, kind, where, path, again)
    (first, waited), (second, _) = two.run(*case, timeout=limit)
    assert second[0] == "interrupted"
    assert len(second) == (4 if again else 2)
    for text in second[1:]:
        assert text.startswith("this rank has left the checkpoint alone, and can take part in")
        assert "KeyboardInterrupt. The others still wait for its part" in text
    (told,) = first
    assert told.startswith("rank 1 gave up, so the checkpoint did not happen on any rank.")
    assert "rank 1: KeyboardInterrupt" in told
    # Otherwise long before the timeout: when the other one has let go of the group.
    assert waited < 20
    assert folders.finished(tmp_path / "run") == []


def caught_while_writing(rank, world, kind, path):
    """Rank 1 is interrupted while torch writes its tensors; torch tells all ranks of that."""
    model = spread(mlp(), kind)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.MonkeyPatch.context() as patch:
        if rank == 1:
            patch.setattr(os, "fsync", interrupt)
        with pytest.raises((KeyboardInterrupt, CheckpointError)) as caught:
            stepper.save(path)
    x, y = dealt(SIZES)[rank][0]
    update = stepper.step((x, y), lambda batch: mean_loss(model, *batch))
    return str(caught.value), update.skipped, stepper.save(path).updates


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_an_interrupt_while_tensors_are_written_is_known_to_all(two, tmp_path, kind):
    first, second = two.run(caught_while_writing, kind, str(tmp_path / "run"))
    assert first[0].startswith("the checkpoint failed on rank 1: KeyboardInterrupt\n")
    assert second[0] == ""
    # Nobody waits for anybody: all can go on.
    assert first[1:] == second[1:] == (None, 1)
    (only,) = (tmp_path / "run").iterdir()
    assert only.name == "00000001-update-1"


def caught_in_a_close(rank, world):
    """Rank 1 is interrupted while it waits for the others at a close, catches it, and goes on."""
    plain = mlp()
    model = spread(plain, "ddp")
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    x, y = dealt(SIZES)[rank][0]
    said = []
    for attempt in range(2):
        with pytest.MonkeyPatch.context() as patch:
            if rank == 1 and attempt == 0:
                patch.setattr(Exchange, "_gather", interrupt_after(Exchange._gather))
            try:
                with stepper.window() as window:
                    window.backward(mean_loss(model, x, y), items=len(y))
                said.append("")
            except KeyboardInterrupt:
                said.append("interrupted")
            except WindowError as error:
                said.append(str(error))
                break
    return said


def test_an_interrupt_that_comes_while_a_rank_waits_at_a_close(two):
    first, second = two.run(caught_in_a_close)
    assert second[0] == "interrupted"
    assert second[1].startswith("this rank has left the close of 'optimizer' alone")
    assert first[-1].startswith("rank 1 gave up, so the sum of the gradients at the close")
    assert "rank 1: KeyboardInterrupt" in first[-1]
