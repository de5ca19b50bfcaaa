"""Patches of a batch are recognised; whatever else a model is given is not one."""

from __future__ import annotations

import torch

from instep.trace import Place
from instep.watching.models import Pieces
from tests.watching.jobs import run

HERE = Place("train.py", 3)


def loaders(pieces, *given):
    return [pieces.loader_of(each, HERE) for each in given]


def test_patches_are_known_from_the_second_on():
    pieces = Pieces()
    pieces.batch("loader")
    images = torch.zeros(2, 3, 8), torch.zeros(2, 3, 8)
    assert loaders(pieces, *images[0].split(4, -1)) == [None, "loader"]
    pieces.batch("loader")
    assert loaders(pieces, *images[1].split(4, -1)) == ["loader", "loader"]


def test_smaller_batches_are_no_patches():
    pieces = Pieces()
    pieces.batch("loader")
    assert loaders(pieces, *torch.zeros(8, 3).split(2)) == [None] * 4


def test_tokens_but_the_last_are_no_patch():
    pieces = Pieces()
    for _ in range(3):
        pieces.batch("loader")
        assert loaders(pieces, torch.zeros(4, 9)[:, :-1]) == [None]


def test_without_a_loader_there_is_no_batch():
    assert loaders(Pieces(), *torch.zeros(2, 8).split(4, -1)) == [None, None]


def test_one_line_that_calls_different_models_in_different_modes():
    job = run("""
models = [torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)]
one, two = models
optimizer = torch.optim.SGD([*one.parameters(), *two.parameters()], lr=0.1)
for update in range(40):
    two.train(update < 20)
    optimizer.zero_grad()
    for each in models:
        each(torch.ones(3, 4)).mean().backward()
    optimizer.step()
""")
    told = [(event.model, event.training) for event in job.trace if event.kind == "forward"]
    assert told[:4] == [("one", True), ("two", True)] * 2
    assert told[-2:] == [("one", True), ("two", False)]
    assert len({id(event) for event in job.trace if event.kind == "forward"}) == 3


def test_a_layer_that_is_replaced_has_its_whole_name():
    job = run("""
model = torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(4, 4)), torch.nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model[0][0].weight = torch.nn.Parameter(torch.ones(4, 4))
model[0][0] = torch.nn.Linear(4, 4)
model[1] = torch.nn.Linear(4, 2)
for update in range(4):
    optimizer.zero_grad()
    model(torch.ones(3, 4)).mean().backward()
    optimizer.step()
""")
    told = [event.name for event in job.trace if event.kind == "rebound"]
    assert told == ["model.0.0.weight", "model.0.0", "model.1"]
    messages = [each.message.partition(" ")[0] for each in job.findings if each.code == "INS503"]
    assert messages == ["`model.0.0.weight`", "`model.0.0`", "`model.1`"]
