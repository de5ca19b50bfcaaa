"""Weights that one rank alone has changed: all ranks are told, and which one it was."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import distributed

import instep
from instep.engine.ranks import drift
from instep.engine.ranks.drift import Drift, bits_of, weights_of
from instep.engine.ranks.headers import Kind, Said, is_agreed
from instep.errors import InstepWarning, WindowError
from tests.distributed.kit import dealt, spread, values
from tests.engine.kit import mean_loss, mlp

SIZES = [[3, 4, 1, 2], [2, 3], [1, 1, 1]]


def change(model, how):
    with torch.no_grad():
        first = next(iter(model.parameters()))
        if how == "a little":
            # One unit in the last place of one weight.
            first[0, 0] = torch.nextafter(first[0, 0], torch.tensor(9.0).double())
        else:
            first.mul_(1.01)


def drifting(rank, world, kind, where, how, path):
    """Rank 1 changes its weights after the first loop, and the others hear of it there."""
    torch.manual_seed(0)
    model = spread(mlp(), kind)
    group = distributed.group.WORLD
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1), group=group)
    loss = lambda batch: (mean_loss(model, *batch), len(batch[1]))
    drift.EVERY = 4 if where == "by count" else 100
    data = dealt(SIZES)[rank]

    def loop():
        for window in stepper.windows(data, size=1):
            for x, y in window:
                if where == "loop's end" and window.index == 5 and rank == 1:
                    change(model, how)
                window.backward(mean_loss(model, x, y), items=len(y))

    loop()
    if rank == 1 and where != "loop's end":
        change(model, how)
    before = error = None
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            if where == "save":
                stepper.save(path)
            elif where == "by count":
                for _ in range(4):
                    before = values(model)
                    stepper.step(data[0], loss, split=2)
            else:
                loop()
        except WindowError as raised:
            error = raised
            assert before is None or values(model) == before
    said = [str(each.message) for each in warned if issubclass(each.category, InstepWarning)]
    return None if error is None else str(error), is_agreed(error), said


@pytest.mark.parametrize("kind", ["ddp", "plain"])
@pytest.mark.parametrize(
    ("where", "doing"),
    [
        ("next loop", "the start of a loop"),
        ("loop's end", "the close of 'optimizer'"),
        ("save", "the checkpoint"),
        ("by count", "the close of 'optimizer'"),
    ],
)
def test_a_change_on_one_rank_stops_all(three, tmp_path, kind, where, doing):
    for text, known, said in three.run(drifting, kind, where, "much", str(tmp_path / "run")):
        assert text.startswith("rank 1 and rank 0 have different weights.")
        assert f"It was found at {doing}, which did not happen on any rank" in text
        assert known
        assert said == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("where", ["next loop", "save", "by count"])
def test_last_bits_that_differ_are_said_once(two, tmp_path, where):
    for text, _, said in two.run(drifting, "ddp", where, "a little", str(tmp_path / "run")):
        assert text is None
        assert len(said) == 1
        assert said[0].startswith("rank 1 and rank 0 have slightly different weights.")


def undisturbed(rank, world, kind, path):
    drift.EVERY = 2
    torch.manual_seed(0)
    model = spread(mlp(), kind)
    group = distributed.group.WORLD
    stepper = instep.Stepper(model, torch.optim.AdamW(model.parameters(), lr=0.1), group=group)
    with warnings.catch_warnings():
        warnings.simplefilter("error", InstepWarning)
        for _ in range(2):
            for window in stepper.windows(dealt(SIZES)[rank], size=1):
                for x, y in window:
                    window.backward(mean_loss(model, x, y), items=len(y))
            stepper.save(path)
        stepper.load(path)
    return values(model)


@pytest.mark.parametrize("kind", ["ddp", "plain", "fsdp"])
def test_ranks_that_train_as_they_should_hear_nothing(three, tmp_path, kind):
    found = three.run(undisturbed, kind, str(tmp_path / "run"))
    assert found[0] == found[1] == found[2]


def said(*weights):
    return [Said(Kind.CLOSE, weights=each) for each in weights]


def test_what_most_ranks_have_is_taken_for_right():
    with pytest.raises(WindowError, match=r"rank 0 and rank 1 have different weights") as caught:
        Drift().require_same(said((1.0, 5.0), (2.0, 9.0), (2.0, 9.0)), "a close")
    assert is_agreed(caught.value)


def test_nothing_is_concluded_from_what_some_ranks_say():
    Drift().require_same(said((), (1.0, 5.0), (2.0, 9.0)), "a close")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.complex64])
def test_any_bit_of_any_parameter_counts(dtype, monkeypatch):
    monkeypatch.setattr(drift, "PART", 5)
    parameters = [torch.randn(3, 4).to(dtype), torch.randn(7).to(dtype)]
    before = weights_of(parameters)
    assert weights_of([p.clone() for p in parameters]) == before
    assert weights_of(parameters[:1]) != before
    for parameter in parameters:
        last = parameter.view(torch.uint8).view(-1)[-1:]
        last ^= 1
        assert weights_of(parameters)[0] != before[0]
        last ^= 1
    assert weights_of(parameters) == before


def test_parts_add_up(monkeypatch):
    parameter = torch.randn(1000)
    whole = int(bits_of(parameter))
    monkeypatch.setattr(drift, "PART", 7)
    assert int(bits_of(parameter)) == whole == int(parameter.view(torch.int32).long().sum())


def test_weights_without_end_are_compared_by_their_bits():
    one = torch.tensor([1.0, float("nan")])
    assert weights_of([one]) == weights_of([one.clone()])
    assert weights_of([]) == ()
