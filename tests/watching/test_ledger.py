import pytest
import torch
from torch import nn

import instep
from instep.errors import WatchError


def parts():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    return model, optimizer


def test_without_a_watch_it_says_what_is_there():
    model, optimizer = parts()
    rows = instep.ledger(model, optimizer)
    assert [(row.gradient, row.backwards) for row in rows] == [("None", None)] * 4
    model(torch.ones(2, 3)).sum().backward()
    model[1].bias.grad.zero_()
    rows = instep.ledger(model, optimizer)
    assert [row.name for row in rows] == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert [row.optimizers for row in rows] == [("optimizer",), ("optimizer",), (), ()]
    assert rows[0].norm == pytest.approx(float(model[0].weight.grad.norm()))
    assert rows[3].gradient == "zeros"
    assert [row.backwards for row in rows] == [None] * 4
    assert str(rows).count("unknown: no watch") == 4
    assert repr(rows) == str(rows)


def test_a_watch_knows_how_many_and_from_where():
    model, optimizer = parts()
    with instep.watch(model, optimizer, live=False):
        for _ in range(3):
            model(torch.ones(2, 3)).sum().backward()
        model[1](torch.ones(1, 2)).sum().backward()
        rows = instep.ledger(model, optimizer)
        assert [row.backwards for row in rows] == [3, 3, 4, 4]
        [(place, count)] = rows[0].lines
        assert place.path == __file__
        assert count == 3
        assert len(rows[2].lines) == 2
        assert f"test_ledger.py:{place.line}:13 ×3" in str(rows)
        optimizer.zero_grad()
        assert [row.backwards for row in instep.ledger(model, optimizer)] == [0, 0, 4, 4]
        model.zero_grad(set_to_none=False)
        assert [row.backwards for row in instep.ledger(model, optimizer)] == [0] * 4
        assert [row.gradient for row in instep.ledger()] == ["None", "None", "zeros", "zeros"]


def test_what_was_there_before_the_watch_is_not_made_up():
    model, optimizer = parts()
    model(torch.ones(2, 3)).sum().backward()
    with instep.watch(model, optimizer, live=False):
        rows = instep.ledger(model, optimizer)
    assert [row.backwards for row in rows] == [None] * 4
    assert "not seen" in str(rows)


def test_with_nothing_named_everything_the_watch_is_about():
    others = parts()
    model, optimizer = parts()
    with instep.watch(model, optimizer, live=False):
        rows = instep.ledger()
    assert [row.name for row in rows] == [
        "model.0.weight", "model.0.bias", "model.1.weight", "model.1.bias",
    ]  # fmt: skip
    assert rows[0].optimizers == ("optimizer",)
    del others
    with pytest.raises(WatchError, match="nothing to list"):
        instep.ledger()


def test_types_devices_and_what_is_no_leaf():
    half = nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    product = half * 2
    embedding = nn.Embedding(4, 2, sparse=True)
    embedding(torch.tensor([1, 1])).sum().backward()
    rows = instep.ledger(half, product, embedding)
    assert [(row.name, row.is_leaf) for row in rows] == [
        ("weight", True), ("half", True), ("product", False),
    ]  # fmt: skip
    assert rows[0].norm == pytest.approx(8**0.5)
    assert rows[1].dtype is torch.bfloat16
    assert rows[1].device.type == "cpu"
    assert rows[1:][0] is rows[1]


def test_a_gradient_that_is_not_finite():
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.tensor([1.0, float("nan")])
    assert instep.ledger(weight)[0].gradient == "nan"


def test_only_what_has_gradients():
    with pytest.raises(WatchError, match="list has no gradients"):
        instep.ledger([1])


def test_names_of_an_optimizer_alone():
    model, optimizer = parts()
    assert [row.name for row in instep.ledger(optimizer)] == ["parameter 0", "parameter 1"]
    with instep.watch(model, optimizer, live=False):
        assert [row.name for row in instep.ledger(optimizer)] == ["0.weight", "0.bias"]


def test_a_norm_with_the_loss_scale_in_it():
    model, optimizer = parts()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with instep.watch(model, optimizer, live=False):
        for _ in range(3):
            optimizer.zero_grad()
            scaler.scale(model(torch.ones(2, 3)).sum()).backward()
            rows = instep.ledger(optimizer)
            assert [row.is_scaled for row in rows] == [True, True]
            assert rows[0].gradient.endswith(" (scaled)")
            assert "still contains the loss scale" in str(rows)
            scaler.unscale_(optimizer)
            assert "scale" not in str(instep.ledger(optimizer))
            scaler.step(optimizer)
            scaler.update()
            assert "scale" not in str(instep.ledger(optimizer))
