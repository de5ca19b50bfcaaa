"""Losses that couple the samples of all ranks, exact in two passes."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import instep
from tests.distributed.crew import RankError
from tests.distributed.kit import EXACT, dealt, error, spread, told, values
from tests.engine.kit import mlp

SIZES = [[5], [8], [0]]


class Head(nn.Module):
    """What only the loss uses: its gradient must not be added up as often as there are ranks."""

    def __init__(self):
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(-2.0, dtype=torch.float64))


def info_nce(found, head):
    images, texts = (F.normalize(found[name], dim=1) for name in ("image", "text"))
    logits = images @ texts.t() / head.temperature.exp()
    targets = torch.arange(len(logits))
    return (F.cross_entropy(logits, targets) + F.cross_entropy(logits.t(), targets)) / 2


def contrast(rank, world, kind, split):
    plain = [mlp(0), mlp(1), Head()]
    image, text = [spread(model, kind) for model in plain[:2]]
    wrapped = [image, text, plain[2]]
    parameters = [p for model in wrapped for p in model.parameters()]
    stepper = instep.Stepper(wrapped, torch.optim.SGD(parameters, lr=0.1), clip_norm=0.05)
    seen = []

    def loss_of(found, batch):
        seen.append(len(found["image"]))
        return info_nce(found, plain[2]), len(found["image"])

    update = stepper.step(
        dealt(SIZES)[rank][0],
        loss_of,
        encode={"image": lambda b: image(b[0]), "text": lambda b: text(b[0].flip(1))},
        split=split,
        gather=True,
    )
    return [values(model) for model in plain], told([update]), seen


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
@pytest.mark.parametrize("split", [3, None])
def test_the_loss_sees_the_samples_of_all_ranks_and_counts_once(three, kind, split):
    found = three.run(contrast, kind, split)
    image, text, head = expected = mlp(0), mlp(1), Head()
    parameters = [p for model in expected for p in model.parameters()]
    x = torch.cat([x for mine in dealt(SIZES) for x, _ in mine])
    loss = info_nce({"image": image(x), "text": text(x.flip(1))}, head)
    loss.backward()
    nn.utils.clip_grad_norm_(parameters, 0.05)
    torch.optim.SGD(parameters, lr=0.1).step()
    for rank, (numbers, updates, seen) in enumerate(found):
        for mine, whole, start in zip(numbers, expected, (mlp(0), mlp(1), Head()), strict=True):
            assert error(mine, whole, start) < EXACT
        assert updates == found[0][1]
        assert updates[0][1] == pytest.approx(loss.item(), rel=1e-13)
        assert updates[0][2] == 13
        # Without samples there is nothing to cut, and nothing of its own to backpropagate.
        assert seen == ([] if rank == 2 and split else [13])


def pooled(rank, world, kind):
    """A mean over all samples before the loss, and labels that travel along."""
    plain = mlp()
    model = spread(plain, kind)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    update = stepper.step(
        dealt(SIZES)[rank][0],
        lambda found, batch: ((found["sum"] / found["count"]).square().sum(), 1),
        encode=lambda b: {"sum": model(b[0]).sum(0), "count": torch.tensor(float(len(b[1])))},
        combine="sum",
        split=2,
        gather=True,
    )
    return values(plain), told([update])


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_sums_go_over_all_ranks(three, kind):
    found = three.run(pooled, kind)
    expected = mlp()
    x = torch.cat([x for mine in dealt(SIZES) for x, _ in mine])
    expected(x).mean(0).square().sum().backward()
    torch.optim.SGD(expected.parameters(), lr=0.1).step()
    for numbers, updates in found:
        assert error(numbers, expected) < EXACT
        assert updates == found[0][1]


def each_by_itself(rank, world, kind):
    """Two terms with counts of their own, on the representations of each rank."""
    plain = mlp()
    model = spread(plain, kind)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    update = stepper.step(
        dealt(SIZES)[rank][0],
        terms_of,
        encode=lambda b: model(b[0]),
        split=2,
    )
    return values(plain), update.losses


def terms_of(found, batch):
    kept = batch[1] != 0
    return {
        "spread": (found.var(), 1),
        "class": (F.cross_entropy(found[kept], batch[1][kept]), int(kept.sum())),
    }


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_without_gathering_each_rank_has_a_loss_of_its_own(three, kind):
    found = three.run(each_by_itself, kind)
    expected = mlp()
    results = [terms_of(expected(mine[0][0]), mine[0]) for mine in dealt(SIZES)[:2]]
    total = 0.0
    for name in ("spread", "class"):
        items = sum(result[name][1] for result in results)
        total = total + sum(result[name][0] * result[name][1] for result in results) / items
    total.backward()
    torch.optim.SGD(expected.parameters(), lr=0.1).step()
    for numbers, losses in found:
        assert error(numbers, expected) < EXACT
        assert losses == found[0][1]


def unlike(rank, world):
    model = spread(mlp(outputs=3), "ddp")
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    stepper.step(
        dealt(SIZES)[rank][0],
        lambda found, batch: found.square().mean(),
        encode=lambda b: model(b[0])[:, : 1 + rank],
        gather=True,
    )


def test_representations_that_do_not_fit_are_refused_everywhere(two):
    with pytest.raises(RankError) as caught:
        two.run(unlike)
    assert all("rank 1 has representations" in text for text in caught.value.errors)


def alone(rank, world, kind, counts):
    """The loss by itself, or with what it counts: of all ranks, or (wrongly) of this one."""
    plain = [mlp(0), mlp(1), Head()]
    image, text = [spread(model, kind) for model in plain[:2]]
    wrapped = [image, text, plain[2]]
    parameters = [p for model in wrapped for p in model.parameters()]
    stepper = instep.Stepper(wrapped, torch.optim.SGD(parameters, lr=0.1))

    def loss_of(found, batch):
        loss = info_nce(found, plain[2])
        return loss if counts == "rows" else (loss, len(batch[0]))

    try:
        update = stepper.step(
            dealt(SIZES)[rank][0],
            loss_of,
            encode={"image": lambda b: image(b[0]), "text": lambda b: text(b[0].flip(1))},
            split=2,
            gather=True,
        )
    except instep.InstepError as error:
        return str(error)
    return [values(model) for model in plain], told([update])


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_loss_alone_counts_the_rows_of_all_ranks(three, kind):
    image, text, head = expected = mlp(0), mlp(1), Head()
    x = torch.cat([x for mine in dealt(SIZES) for x, _ in mine])
    info_nce({"image": image(x), "text": text(x.flip(1))}, head).backward()
    torch.optim.SGD([p for model in expected for p in model.parameters()], lr=0.1).step()
    for numbers, updates in three.run(alone, kind, "rows"):
        for mine, whole, start in zip(numbers, expected, (mlp(0), mlp(1), Head()), strict=True):
            assert error(mine, whole, start) < EXACT
        assert updates[0][2] == 13


def test_a_loss_of_all_ranks_that_counts_its_own_samples_is_an_error(three):
    for said in three.run(alone, "ddp", "own"):
        assert "rank 1 counted other items than the first rank, with gather=True" in said


def complex_spread(rank, world):
    plain = mlp()
    model = spread(plain, "ddp")
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    stepper.step(
        dealt(SIZES)[rank][0], of_complex, encode=lambda b: as_complex(model(b[0])), gather=True
    )
    return values(plain)


def as_complex(out):
    return torch.complex(out, out.square())


def of_complex(found, _):
    return (found @ found.conj().t()).abs().mean()


def test_complex_representations(three):
    expected = mlp()
    x = torch.cat([x for mine in dealt(SIZES) for x, _ in mine])
    of_complex(as_complex(expected(x)), None).backward()
    torch.optim.SGD(expected.parameters(), lr=0.1).step()
    for numbers in three.run(complex_spread):
        assert error(numbers, expected, mlp()) < EXACT
