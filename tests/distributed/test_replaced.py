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


class Wrapped(nn.Module):
    """Keeps the weights of a layer, and computes something else with them."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return 2 * self.inner(x)


def replace(plain, what, model=None):
    first = plain[0]
    if what == "layer":
        plain[0] = nn.Linear(first.in_features, first.out_features).to(first.weight.dtype)
    elif what == "wrapped":
        plain[0] = Wrapped(first)
    elif what == "model":
        model.module = mlp()
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
                if rank in who and when == "inside" and (window.index, index) == (0, 0):
                    replace(plain, what, model)
            updates += window.update.skipped is None
            if rank in who and when == "between" and window.index == 0:
                replace(plain, what, model)
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
        ("fsdp", "layer", "between", 1),
        ("fsdp", "layer", "inside", 0),
        ("fsdp at once", "layer", "between", 1),
        ("fsdp at once", "layer", "inside", 0),
        ("ddp", "model", "between", 1),
        ("ddp", "model", "inside", 0),
    ],
)
def test_all_ranks_are_told_which_one_it_was(two, kind, what, when, updates, who):
    for text, known, made in two.run(one_replaces, kind, what, when, [who]):
        assert text.startswith(f"'0.weight' was replaced in the model of rank {who}, and not on")
        assert known
        assert made == updates


@pytest.mark.parametrize("kind", ["plain", "ddp", "fsdp", "fsdp at once"])
def test_a_wrapper_that_keeps_the_weights(two, kind):
    for text, known, made in two.run(one_replaces, kind, "wrapped", "between", [1]):
        assert text.startswith("'0.weight' was moved to '0.inner.weight' in the model of rank 1, ")
        assert (known, made) == (True, 1)


@pytest.mark.parametrize(
    ("kind", "what"),
    [("plain", "parameter"), ("plain", "layer"), ("ddp", "wrapped"), ("fsdp", "wrapped")],
)
def test_what_all_ranks_replace_is_as_in_one_process(two, kind, what):
    assert two.run(one_replaces, kind, what, "between", [0, 1]) == [("", False, 2)] * 2


class Tied(nn.Sequential):
    """Two layers with one weight, and one that is there twice."""

    def __init__(self):
        super().__init__(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3))
        self[1].weight = self[0].weight
        self.append(self[2])


def one_unties(rank, world, kind, what):
    torch.manual_seed(0)
    plain = Tied().double()
    model = spread(plain, kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    stepper = instep.Stepper(model, optimizer, group=distributed.group.WORLD)
    x = torch.ones(2, 3, dtype=torch.float64)
    said = []
    for attempt in range(2):
        if rank == 1 and attempt == 1:
            if what == "weight":
                plain[1].weight = nn.Parameter(plain[1].weight.detach().clone())
            else:
                plain[3] = nn.Linear(3, 3).double()
        try:
            with stepper.window() as window:
                window.backward(model(x).square().mean(), items=2)
            said.append("")
        except WindowError as error:
            said.append(str(error).splitlines()[0])
    return said


@pytest.mark.parametrize(
    ("kind", "what", "name"),
    [
        ("plain", "weight", "1.weight"),
        ("ddp", "weight", "1.weight"),
        ("ddp", "layer", "3.weight"),
    ],
)
def test_weights_that_are_untied_on_one_rank(two, kind, what, name):
    told = f"'{name}' was replaced in the model of rank 1, and not on the others."
    assert two.run(one_unties, kind, what) == [["", told]] * 2


def another_closes_first(rank, world):
    """Rank 1 replaces a parameter of the optimizer that closes last."""
    g, d = mlp(), mlp(1)
    optimizers = {
        "g": torch.optim.SGD(g.parameters(), lr=0.1),
        "d": torch.optim.SGD(d.parameters(), lr=0.1),
    }
    stepper = instep.Stepper([g, d], optimizers, group=distributed.group.WORLD)
    x, y = dealt(SIZES)[rank][0]
    made, said = [], ""
    try:
        for window in stepper.windows([(x, y)] * 3, size={"g": 1, "d": 3}):
            for index, _ in enumerate(window):
                if rank == 1 and index == 1:
                    replace(d, "parameter")
                window.backward(mean_loss(g, x, y), items=len(y), optimizer="g")
                window.backward(mean_loss(d, x, y), items=len(y), optimizer="d")
                made = [update.optimizer for update in window.updates]
    except WindowError as error:
        said = str(error).splitlines()[0]
    return said, made


def test_optimizers_of_which_another_one_closes_first(two):
    said = "'models[1].0.weight' was replaced in the model of rank 1, and not on the others."
    assert two.run(another_closes_first) == [(said, ["g"])] * 2


def built_before(rank, world):
    """Rank 1 replaces a layer between its optimizer and its stepper."""
    plain = mlp()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    if rank == 1:
        replace(plain, "layer")
    stepper = instep.Stepper(plain, optimizer, group=distributed.group.WORLD)
    x, y = dealt(SIZES)[rank][0]
    with pytest.raises(WindowError) as caught, stepper.window() as window:
        window.backward(mean_loss(plain, x, y), items=len(y))
    return str(caught.value).splitlines()[0]


def test_what_was_replaced_before_the_stepper_was_built(two):
    said = "parameter 0 of 'optimizer' is missing in the model of rank 1, and not on the others."
    assert two.run(built_before) == [said] * 2


def of_a_rank_alone(rank, world):
    """What one rank may do to its model for itself: watch it, compile it, keep more in it."""
    plain = mlp()
    stepper = instep.Stepper(
        plain, torch.optim.SGD(plain.parameters(), lr=0.1), group=distributed.group.WORLD
    )
    updates = 0
    for window in stepper.windows(dealt(SIZES)[rank], size=1):
        for x, y in window:
            window.backward(mean_loss(plain, x, y), items=len(y))
        updates += window.update.skipped is None
        if rank == 1 and window.index == 0:
            plain[0].probe = nn.Linear(2, 2)
            plain[0].inside = plain  # a circle
        if rank == 1 and window.index == 1:
            plain[0] = torch.compile(plain[0], backend="eager")
    return updates


def test_what_a_rank_does_for_itself_is_no_replacement(two):
    assert two.run(of_a_rank_alone) == [4, 4]


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


def test_what_is_lost_and_comes_back():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = before = model[0].weight
    lane = lane_of(*model.parameters())
    places = Places([model], None)
    places.learn([lane])
    assert places.lost([lane]) == ("", "")
    model[0].weight = nn.Parameter(torch.zeros(3, 3))
    one = places.lost([lane])
    assert one.words == "'0.weight' was replaced in the model"
    model[1].weight = nn.Parameter(torch.zeros(3, 3))
    assert places.lost([lane]).number not in ("", one.number)
    # It stays so, until all is as it was.
    assert places.lost([lane]).words == "'0.weight' was replaced in the model"
    model[0].weight = model[1].weight = before
    assert places.lost([lane]) == ("", "")


def test_a_look_at_what_has_not_changed_walks_through_no_model(monkeypatch):
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    places = Places([model], None)
    places.learn([lane := lane_of(*model.parameters())])
    monkeypatch.setattr(places, "_look", None)
    assert places.lost([lane]) == ("", "")
    del model[1]
    with pytest.raises(TypeError):
        places.lost([lane])


def test_what_was_in_no_model_is_not_missed():
    alone = nn.Parameter(torch.zeros(3))
    model = nn.Linear(3, 3)
    places = Places([model], None)
    places.learn([lane := lane_of(alone, *model.parameters())])
    before = places.lost([lane])
    assert before.words == "parameter 0 of 'g' is missing in the model"
    model.extra = nn.Linear(2, 2)
    assert places.lost([lane]) == before
    del model.weight
    assert places.lost([lane]) != before


def test_ranks_that_have_replaced_others_are_told_apart():
    said = [Said(Kind.CLOSE, lost=name, replaced=f"{name!r} was replaced") for name in "aba"]
    with pytest.raises(WindowError, match=r"^'b' was replaced of rank 1, and"):
        require_same_places(said)
    require_same_places(said[::2])
