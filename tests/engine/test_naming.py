"""Names that arguments have elsewhere are answered with those they have here."""

from __future__ import annotations

import inspect

import pytest
import torch

import instep
from instep.engine.naming import BACKWARD, STEPPER, WINDOWS, told
from instep.errors import CallError
from tests.engine import kit


def parts():
    model = kit.mlp()
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


@pytest.mark.parametrize("name", STEPPER)
def test_arguments_of_a_stepper(name):
    with pytest.raises(CallError, match=rf"takes no {name}=") as caught:
        instep.Stepper(*parts(), **{name: 1})
    assert isinstance(caught.value, TypeError)
    assert "clip_norm" in caught.value.why
    assert caught.value.fix == STEPPER[name]
    assert caught.value.__context__ is None


@pytest.mark.parametrize("name", [name for name in WINDOWS if name != "size"])
def test_arguments_of_windows(name):
    stepper = instep.Stepper(*parts())
    with pytest.raises(CallError, match=rf"takes no {name}="):
        stepper.windows([], **{name: 1})


def test_windows_without_a_size():
    with pytest.raises(CallError, match="missing a required argument: 'size'") as caught:
        instep.Stepper(*parts()).windows([])
    assert "size=4" in caught.value.fix


@pytest.mark.parametrize("name", BACKWARD)
def test_arguments_of_a_backward(name):
    model, optimizer = parts()
    stepper = instep.Stepper(model, optimizer)
    x, y = kit.batches([4])[0]
    with (
        pytest.raises(CallError, match=rf"takes no {name}="),
        stepper.window() as window,
    ):
        window.backward(kit.mean_loss(model, x, y), **{name: 4})
    assert all(p.grad is None for p in model.parameters())


def test_other_calls_that_are_wrong_are_pythons_own():
    with pytest.raises(TypeError, match="wholly_unknown") as caught:
        instep.Stepper(*parts(), wholly_unknown=1)
    assert type(caught.value) is TypeError
    with pytest.raises(TypeError, match="'loader'"):
        instep.Stepper(*parts()).windows(size=2)


def test_an_error_from_inside_is_left_alone():
    def raises(size: int) -> None:
        raise TypeError(size)

    with pytest.raises(TypeError, match="3") as caught:
        told("raises()", {"length": "pass size="})(raises)(3)
    assert type(caught.value) is TypeError


def test_names_that_are_answered_are_none_of_ours():
    for function, names in (
        (instep.Stepper.__init__, STEPPER),
        (instep.Stepper.windows, WINDOWS),
        (instep.Window.backward, BACKWARD),
    ):
        assert not ({*names} - {"size"}) & {*inspect.signature(function).parameters}
