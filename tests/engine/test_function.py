"""Every way to cut a ragged batch gives the gradient of the whole."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_sequence

import instep
from instep.engine.function import read_result
from instep.engine.reference import relative_error
from instep.errors import LossError

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
