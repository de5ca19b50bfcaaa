"""Weights that one rank alone has changed: all ranks are told, and which one it was."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

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
        elif how == "the last row":
            first[-1].mul_(1.5)
        else:
            first.mul_(1.01)


def drifting(rank, world, kind, where, how, path):
    """Rank 1 changes its weights after the first loop, and the others hear of it there."""
    torch.manual_seed(0)
    model = spread(mlp(), kind)
    group = distributed.group.WORLD
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1), group=group)
    loss = lambda batch: (mean_loss(model, *batch), len(batch[1]))
    drift.EVERY = 6 if where == "by count" else 100
    # What it sees of a parameter is the first row, then.
    drift.FEW = 1 if where == "by count" else 2**14
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
    steps = 0
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            if where == "save":
                stepper.save(path)
            elif where in ("by count", "next close"):
                for _ in range(4):
                    before = values(model)
                    steps += 1
                    stepper.step(data[0], loss, split=2)
            else:
                loop()
        except WindowError as raised:
            error = raised
            assert before is None or values(model) == before
    said = [str(each.message) for each in warned if issubclass(each.category, InstepWarning)]
    assert where != "next close" or how == "a little" or steps == 1
    assert where != "by count" or how == "a little" or steps > 1
    return None if error is None else str(error), is_agreed(error), said


@pytest.mark.parametrize("kind", ["ddp", "plain"])
@pytest.mark.parametrize(
    ("where", "how", "doing"),
    [
        ("next loop", "much", "the start of a loop"),
        ("loop's end", "much", "the close of 'optimizer'"),
        ("save", "much", "the checkpoint"),
        ("next close", "much", "the close of 'optimizer'"),
        ("by count", "the last row", "the close of 'optimizer'"),
    ],
)
def test_a_change_on_one_rank_stops_all(three, tmp_path, kind, where, how, doing):
    for text, known, said in three.run(drifting, kind, where, how, str(tmp_path / "run")):
        assert text.startswith("rank 1 and rank 0 have different weights.")
        assert f"It was found at {doing}, which did not happen on any rank" in text
        assert known
        assert said == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("where", ["next loop", "save", "next close", "by count"])
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


@pytest.mark.parametrize("silent", [0, 1, 2])
def test_nothing_is_concluded_from_what_some_ranks_say(silent, monkeypatch):
    """Who is wrong is open until all have told: no error, and no warning, which comes once."""
    warned = []
    monkeypatch.setattr(drift, "warn", warned.append)
    far = said((1.0, 5.0), (2.0, 9.0), (2.0, 9.0))
    near = said((1.0, 5.0), (2.0, 5.0), (2.0, 5.0))
    looking = Drift()
    for heard in (far, near):
        some = list(heard)
        some[silent] = Said(Kind.CLOSE)
        looking.require_same(some, "a close")
    assert warned == []
    # With the word of the last one, the same numbers count.
    looking.require_same(near, "a close")
    assert len(warned) == 1
    assert warned[0].startswith("rank 0 and rank 1 have slightly different weights.")
    with pytest.raises(WindowError, match=r"rank 0 and rank 1 have different weights"):
        looking.require_same(far, "a close")


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


def few_of(*tensors):
    """A lane's worth of what a glance looks at."""
    lane = SimpleNamespace(name="g", optimizers=[torch.optim.SGD(tensors, lr=0.1)])
    looking = Drift()
    assert looking.glance(lane) == 0  # the first close compares all
    looking.note_close("g")
    return looking, lane


def test_a_glance_is_of_another_parameter_each_time():
    tensors = [torch.randn(3, 4, requires_grad=True), torch.randn((), requires_grad=True)]
    looking, lane = few_of(*tensors, torch.empty(0, 2, requires_grad=True))
    seen = set()
    for _ in range(6):
        seen.add(looking.glance(lane))
        looking.note_close("g")
    assert len(seen) == 3
    assert 0 not in seen


def test_a_glance_is_of_a_few(monkeypatch):
    monkeypatch.setattr(drift, "FEW", 8)
    weight = torch.randn(6, 4, requires_grad=True)
    looking, lane = few_of(weight)
    before = looking.glance(lane)
    with torch.no_grad():
        weight[2:] += 1
        assert looking.glance(lane) == before
        weight[1, 3] += 1
    assert looking.glance(lane) != before


def test_only_ranks_with_the_same_weights_are_compared():
    looked = [Said(Kind.CLOSE, glance=glance) for glance in (5, 6, 5, 6)]
    assert Drift().is_suspect(looked)
    assert Drift([[0, 1], [2, 3]]).is_suspect(looked)
    assert not Drift([[0, 2], [1, 3]]).is_suspect(looked)
    assert not Drift([]).is_suspect(looked)
    weights = said((1.0, 5.0), (2.0, 9.0), (1.0, 5.0), (3.0, 7.0))
    Drift([[0, 2]]).require_same(weights, "a close")
    with pytest.raises(WindowError, match=r"rank 3 and rank 1 have different weights"):
        Drift([[0, 2], [1, 3]]).require_same(weights, "a close")
