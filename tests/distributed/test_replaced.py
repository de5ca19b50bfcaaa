"""A parameter that one rank alone has replaced in its model: all ranks are told, and which one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import distributed, nn

import instep
from instep.engine.ranks.headers import Kind, Said, is_agreed
from instep.engine.ranks.replaced import Places, require_same_places
from instep.errors import WindowError
from tests.distributed.kit import dealt, spread, values
from tests.engine.kit import mean_loss, mlp

SIZES = [[3, 4, 1, 2], [2, 3, 2, 1]]


def replace(plain, what):
    first = plain[0]
    if what == "layer":
        plain[0] = nn.Linear(first.in_features, first.out_features).to(first.weight.dtype)
    else:
        first.weight = nn.Parameter(first.weight.detach().clone())


def one_replaces(rank, world, kind, what, when, who):
    plain = mlp()
    model = spread(plain, kind.removesuffix(" at once"))
    sync = "micro-batch" if kind.endswith("at once") else "window"
    group = distributed.group.WORLD
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    stepper = instep.Stepper(model, optimizer, group=group, sync=sync)
    updates = 0
    try:
        for window in stepper.windows(dealt(SIZES)[rank], size=2):
            for index, (x, y) in enumerate(window):
                window.backward(mean_loss(model, x, y), items=len(y))
                if rank in who and when == "inside" and (window.index, index) == (0, 1):
                    replace(plain, what)
            updates += window.update.skipped is None
            if rank in who and when == "between" and window.index == 0:
                replace(plain, what)
    except WindowError as error:
        return str(error), is_agreed(error), updates
    return "", False, updates


@pytest.mark.parametrize("who", [0, 1])
@pytest.mark.parametrize(
    ("kind", "what", "when", "updates"),
    [
        ("plain", "parameter", "between", 1),
        ("plain", "parameter", "inside", 0),
        ("plain", "layer", "between", 1),
        ("ddp", "parameter", "between", 1),
        ("ddp", "layer", "inside", 0),
        ("fsdp", "parameter", "between", 1),
        ("fsdp", "parameter", "inside", 0),
        ("fsdp at once", "parameter", "between", 1),
    ],
)
def test_all_ranks_are_told_which_one_it_was(two, kind, what, when, updates, who):
    for text, known, made in two.run(one_replaces, kind, what, when, [who]):
        assert text.startswith(f"'0.weight' was replaced in the model of rank {who}, and not on")
        assert known
        assert made == updates


def test_what_all_ranks_replace_is_as_in_one_process(two):
    assert two.run(one_replaces, "plain", "parameter", "between", [0, 1]) == [("", False, 2)] * 2


def given_to_the_optimizer(rank, world):
    """A parameter that is new in the model and in the optimizer, on both ranks; then on one."""
    plain = mlp()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    stepper = instep.Stepper(plain, optimizer, group=distributed.group.WORLD)

    def step():
        x, y = dealt(SIZES)[rank][0]
        return stepper.step((x, y), lambda batch: (mean_loss(plain, *batch), len(batch[1])))

    step()
    replace(plain, "parameter")
    optimizer.param_groups[0]["params"][0] = plain[0].weight
    step()
    if rank == 1:
        replace(plain, "parameter")
    with pytest.raises(WindowError) as caught:
        step()
    return str(caught.value).splitlines()[0], values(plain)


def test_optimizers_that_were_given_the_new_one_are_followed(two):
    first, second = two.run(given_to_the_optimizer)
    assert first == second
    assert "'0.weight' was replaced in the model of rank 1" in first[0]


def lane_of(*parameters):
    return SimpleNamespace(name="g", optimizers=[torch.optim.SGD(parameters, lr=0.1)])


def test_tied_weights_are_there_as_long_as_one_of_them_is():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    lane = lane_of(*model.parameters())
    places = Places([model], None)
    places.learn([lane])
    model[0].weight = nn.Parameter(torch.zeros(3, 3))
    assert places.missing([lane]) == ""
    model[1].weight = nn.Parameter(torch.zeros(3, 3))
    assert places.missing([lane]) == "1.weight"
    # It stays missing.
    assert places.missing([lane]) == "1.weight"


def test_what_was_in_no_model_is_not_missed():
    alone = nn.Parameter(torch.zeros(3))
    model = nn.Linear(3, 3)
    places = Places([model], None)
    places.learn([lane := lane_of(alone, *model.parameters())])
    model.extra = nn.Linear(2, 2)
    assert places.missing([lane]) == ""
    del model.weight
    assert places.missing([lane]) == "weight"


def test_ranks_that_have_replaced_others_are_told_apart():
    said = [Said(Kind.CLOSE, replaced=name) for name in ("a", "b", "a")]
    with pytest.raises(WindowError, match=r"^'b' was replaced in the model of rank 1, and"):
        require_same_places(said)
    require_same_places(said[::2])
