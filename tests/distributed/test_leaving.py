"""A rank that leaves its loop alone: told while there is more to do for all, and not after that."""

from __future__ import annotations

import pytest

from instep.errors import InstepError
from tests.distributed.kit import dealt, values
from tests.distributed.test_failures import build
from tests.engine.kit import mean_loss

SIZES = {
    "even": [[3, 4, 1, 2], [2, 3, 5, 1]],
    "it ends first": [[3, 4, 1], [2, 3, 5, 1]],
    "it ends last": [[3, 4, 1, 2], [2, 3, 5]],
    "others go on": [[3, 4], [2, 3, 5, 1]],
}


def train_once(rank, stepper, model, data, how, at):
    """One loop, which rank 0 leaves behind its window `at`, or inside of that."""
    managed = stepper.windows(data, size=2, on_exit="flush" if how == "flush" else "discard")
    if how in ("flush", "with"):
        with managed as windows:
            leave_at(rank, windows, model, how, at)
        return
    leave_at(rank, managed, model, how, at)


def leave_at(rank, windows, model, how, at):
    for count, window in enumerate(windows, 1):
        is_now = rank == 0 and count == at
        for index, (x, y) in enumerate(window):
            window.backward(mean_loss(model, x, y), items=len(y))
            if is_now and how == "flush" and index == 1:
                break
        if is_now and how != "flush":
            if how == "raise":
                raise ZeroDivisionError("an evaluation failed")
            break
        if is_now:
            break


def leave(rank, world, kind, how, name, at, path=""):
    plain, model, stepper = build(kind)
    data, said = dealt(SIZES[name])[rank], []
    if path:
        stepper.autosave(path, every=2, signals=())
    for turn in range(3):
        try:
            train_once(rank, stepper, model, data, how, at if turn == 0 else 0)
        except ZeroDivisionError:
            said.append("own")
        except InstepError as problem:
            said.append(str(problem))
    return said, values(plain), stepper.state_dict()["index"]


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
@pytest.mark.parametrize("name", ["even", "it ends first", "it ends last"])
@pytest.mark.parametrize("how", ["break", "raise", "flush", "with"])
def test_after_the_last_window_of_all_ranks_nobody_is_told(two, kind, name, how):
    (mine, numbers, index), (other, others, there) = two.run(leave, kind, how, name, 2)
    assert mine == (["own"] if how == "raise" else [])
    assert other == []
    assert numbers == others
    assert index == there == 6


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
@pytest.mark.parametrize("name", ["even", "others go on"])
@pytest.mark.parametrize("how", ["break", "flush", "with"])
def test_with_windows_to_come_the_others_are_told(two, kind, name, how):
    (mine, numbers, _), (other, others, _) = two.run(leave, kind, how, name, 1)
    assert mine == []
    assert len(other) == 1
    assert other[0].startswith("rank 0 gave up")
    assert "it left its loop, by a break or an error of its own, near test_leaving.py" in other[0]
    assert numbers == others


def test_where_all_ranks_are_to_save_the_others_are_told(two, tmp_path):
    path = str(tmp_path / "run")
    (mine, numbers, _), (other, others, _) = two.run(leave, "ddp", "break", "even", 2, path)
    assert mine == []
    assert len(other) == 1
    assert other[0].startswith("rank 0 gave up, so the checkpoint did not happen")
    assert numbers == others
