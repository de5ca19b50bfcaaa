"""Every way to cut a ragged batch gives the gradient of the whole."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import default_collate

import instep
from instep.engine.function import read_result
from instep.engine.reference import relative_error
from instep.errors import ItemsError, LossError, SplitError
from instep.splits.tree import tensors

LENGTHS = [5, 2, 7, 1, 3, 7, 4]
SPLITS = [
    *range(1, 9),
    instep.Micro(tokens=7),
    instep.Micro(tokens=1),
    instep.Micro(tokens=100),
    instep.Micro("auto"),
    instep.Micro("auto", budget=1e9),
    instep.Micro("auto", budget=4e4),
]


def gradients(model, batch, loss_fn, split):
    """The gradient of one window, and of the same loss on the whole batch."""
    whole = copy.deepcopy(model)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1), keep_grads=True)
    update = stepper.step(batch, lambda piece: loss_fn(model, piece), split=split)
    loss, _ = loss_fn(whole, batch)
    loss.backward()
    assert update.loss == pytest.approx(loss.item(), rel=1e-12)
    return [p.grad for p in model.parameters()], [p.grad for p in whole.parameters()]


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.head = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))

    def forward(self, tokens):
        return self.head(self.embed(tokens))


@pytest.mark.parametrize("time_first", [False, True])
@pytest.mark.parametrize("split", SPLITS, ids=repr)
def test_padded_tokens(split, time_first):
    torch.manual_seed(0)
    tokens = torch.randint(0, 11, (len(LENGTHS), max(LENGTHS)))
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS).unsqueeze(1)
    labels = torch.where(mask, torch.randint(0, 3, mask.shape), -100)
    batch = {"tokens": tokens, "attention_mask": mask.long(), "labels": labels}
    if time_first:
        batch = {name: tensor.T.contiguous() for name, tensor in batch.items()}
        given = split if isinstance(split, instep.Micro) else instep.Micro(split)
        split = instep.Micro(given.size, tokens=given.tokens, budget=given.budget, dim=1)

    def loss(model, piece):
        found = model(piece["tokens"]).flatten(0, 1)
        targets = piece["labels"].flatten()
        return F.cross_entropy(found, targets), (targets != -100).sum()

    found, true = gradients(Tagger().double(), batch, loss, split)
    assert relative_error(found, true) < 1e-10


@pytest.mark.parametrize("is_sorted", [False, True])
@pytest.mark.parametrize("split", SPLITS, ids=repr)
def test_packed_sequences(split, is_sorted):
    torch.manual_seed(0)
    lengths = sorted(LENGTHS, reverse=True) if is_sorted else LENGTHS
    sequences = [torch.randn(n, 4, dtype=torch.float64) for n in lengths]
    packed = pack_sequence(sequences, enforce_sorted=is_sorted)
    targets = torch.randn(len(lengths), 5, dtype=torch.float64)

    def loss(model, piece):
        sequences, wanted = piece
        _, (last, _) = model(sequences)
        return F.mse_loss(last[0], wanted), len(wanted)

    found, true = gradients(nn.LSTM(4, 5).double(), (packed, targets), loss, split)
    assert relative_error(found, true) < 1e-10


def test_a_lone_loss_without_items_says_what_it_may_be():
    with pytest.raises(LossError, match="without its items") as caught:
        read_result(torch.ones(()), None)
    assert "no tensor whose length" in caught.value.why
    assert "different numbers" in caught.value.why


SIX = {
    "pairs": (torch.ones(3, 4), 1),
    "dicts": {"x": torch.ones(3, 4), "name": "a"},
    "rows": tuple(float(n) for n in range(10)),
    "texts": ("a", torch.ones(3), "b"),
    "pair of pairs": ((torch.ones(3, 4), 1), (torch.ones(3, 4), 2)),
    "pair of dicts": [{"a": torch.ones(3)}, {"a": torch.ones(3)}],
}
ASKED = ("pair of pairs", "pair of dicts")


def collated_loss(layer, piece):
    found = [leaf.float().mean() for leaf in tensors(piece)]
    return layer(torch.stack(found).mean().reshape(1)).square().sum()


def stepped(batch, split, *, is_bare):
    layer = nn.Linear(1, 1)
    stepper = instep.Stepper(layer, torch.optim.SGD(layer.parameters(), lr=0.1))

    def loss(piece):
        value = collated_loss(layer, piece)
        return value if is_bare else (value, len(next(tensors(piece))))

    return stepper.step(batch, loss, split=split)


@pytest.mark.parametrize("split", [None, 2])
@pytest.mark.parametrize("name", SIX)
def test_what_torch_collates_makes_an_update(name, split):
    batch = default_collate([SIX[name]] * 6)
    if split is None or name not in ASKED:
        update = stepped(batch, split, is_bare=False)
        assert (update.items, update.micro_batches) == (6, 1 if split is None else 3)
    if name not in ASKED:
        assert stepped(batch, split, is_bare=True).items == 6
        return
    with pytest.raises(SplitError if split else LossError, match="samples, or columns") as caught:
        stepped(batch, split, is_bare=True)
    assert "tuple(batch)" in caught.value.fix
    assert "Micro(8, dim=None)" in caught.value.fix
    assert stepped(tuple(batch), split, is_bare=True).items == 6
    assert stepped(batch, instep.Micro(8, dim=None), is_bare=True).items == 2


def test_images_of_detection_are_told_to_come_as_a_list():
    samples = [(torch.ones(3, n, n), {"boxes": torch.ones(2, 4)}) for n in (5, 8, 7)]
    batch = tuple(zip(*samples, strict=True))
    with pytest.raises(LossError, match="one entry per sample") as caught:
        stepped(batch, None, is_bare=True)
    assert "collate_fn=list" in caught.value.fix
    assert stepped(batch, None, is_bare=False).micro_batches == 1
    assert stepped(samples, instep.Micro(2, dim=None), is_bare=True).items == 3


def samples(count, kind=tuple):
    torch.manual_seed(0)
    made = [(torch.randint(0, 11, (12,)), torch.randint(0, 3, ())) for _ in range(count)]
    return made if kind is tuple else [{"t": t, "y": y} for t, y in made]


def listed_loss(model, piece):
    pairs = [tuple(sample.values()) if isinstance(sample, dict) else sample for sample in piece]
    tokens, labels = torch.stack([t for t, _ in pairs]), torch.stack([y for _, y in pairs])
    return F.cross_entropy(model(tokens).mean(1), labels), len(piece)


@pytest.mark.parametrize("kind", [tuple, dict])
@pytest.mark.parametrize("split", [*SPLITS, instep.Micro(2, dim=None)], ids=repr)
def test_lists_of_samples(split, kind):
    torch.manual_seed(0)
    found, true = gradients(Tagger().double(), samples(7, kind), listed_loss, split)
    assert relative_error(found, true) < 1e-10


@pytest.mark.parametrize("split", [None, 2])
def test_a_lone_loss_of_a_list_of_samples_counts_them(split):
    model = Tagger().double()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    update = stepper.step(samples(5), lambda piece: listed_loss(model, piece)[0], split=split)
    assert (update.items, update.micro_batches) == (5, 1 if split is None else 3)
    assert instep.verify(stepper, samples(5), lambda p: listed_loss(model, p)[0], split=split).ok


def test_two_passes_over_a_list_of_samples():
    model = Tagger().double()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))

    def encode(piece):
        return model(torch.stack([t for t, _ in piece])).mean(1)

    def loss(found, batch):
        return F.cross_entropy(found @ found.T, torch.arange(len(batch)))

    assert instep.verify(stepper, samples(7), loss, split=2, encode=encode).ok


def test_a_batch_that_is_not_cut_may_be_of_any_sizes():
    model = nn.Linear(3, 1)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    batch = (torch.ones(4, 3), torch.ones(7, 1))
    update = stepper.step(batch, lambda piece: (model(piece[0]).square().mean(), 4))
    assert update.items == 4
    with pytest.raises(LossError, match="without its items") as caught:
        stepper.step(batch, lambda piece: model(piece[0]).square().mean())
    assert "[4, 7] samples" in caught.value.why


def test_auto_is_no_number():
    model = nn.Linear(3, 1)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(SplitError, match="split is 'auto'") as caught:
        stepper.step(torch.ones(4, 3), lambda piece: model(piece).mean(), split="auto")
    assert 'instep.Micro("auto")' in caught.value.fix


def test_a_term_without_its_items_is_named():
    with pytest.raises(ItemsError, match="term 'mse' without its items") as caught:
        read_result({"l1": (torch.ones(()), 3), "mse": torch.ones(())}, 3)
    assert "{'mse': (loss, items), ...}" in caught.value.fix


def test_what_requires_a_gradient_is_no_count():
    model = nn.Linear(3, 1)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(ItemsError, match="requires a gradient"):
        stepper.step(torch.ones(4, 3), lambda piece: (model(piece).mean(), model(piece).mean()))
