"""The options of a step, each for itself; what they compute is tested beside it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import instep
from instep.engine.forms import Form
from instep.errors import SplitError

X = torch.ones(4, 2)


def test_without_options_a_step_is_pieces_by_themselves():
    form = Form.of(len)
    assert form.encoders is None
    assert form.batchnorm == "piece"
    assert form.whole([1, 2]) == 2


def test_the_whole_is_what_the_loss_is_given():
    one = Form.of(lambda z, batch: (z, batch), encode=lambda x: x + 1)
    assert one.whole(3) == (4, 3)
    several = Form.of(lambda z, batch: z, encode={"a": lambda x: x, "b": lambda x: 2 * x})
    assert several.whole(3) == {"a": 3, "b": 6}


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"encode": 1}, "encode is 1"),
        ({"encode": {"a": 1}}, "encode is"),
        ({"combine": "sum"}, "without encode"),
        ({"encode": len, "combine": "cat"}, "combine is 'cat'"),
        ({"batchnorm": "frozen"}, "batchnorm is 'frozen'"),
    ],
)
def test_what_cannot_be_is_refused(options, match):
    with pytest.raises(SplitError, match=match):
        Form.of(len, **options)


def test_a_step_in_two_passes_is_one_backward_in_the_trace():
    model = nn.Linear(2, 1)
    trace = instep.Trace()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1), trace=trace)
    update = stepper.step(X, lambda z, _: z.square().mean(), encode=model, split=1)
    assert update.micro_batches == 1
    assert len(trace.of("backward")) == 1
    (backward,) = trace.of("backward")
    assert backward.items == 4
    assert "test_forms.py" in str(backward.place)


def test_a_loss_that_fails_leaves_buffers_as_they_were():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))

    def broken(z, batch):
        raise ZeroDivisionError

    for options in ({}, {"batchnorm": "window"}, {"batchnorm": "exact"}):
        with pytest.raises(ZeroDivisionError):
            stepper.step(X, broken, encode=model, split=2, **options)
        assert int(model[1].num_batches_tracked) == 0
        assert model[1].running_mean.tolist() == [0.0, 0.0, 0.0]
        assert not stepper.is_in_window


@pytest.mark.parametrize(
    "loss_fn",
    [
        lambda piece: piece,
        lambda *, z, batch: z,
        lambda a, b, c: a,
        nn.Linear(2, 2),
        nn.TripletMarginLoss(),
    ],
)
def test_a_loss_of_two_passes_that_takes_no_two_arguments_is_refused(loss_fn):
    with pytest.raises(SplitError, match="loss_fn cannot be called") as caught:
        Form.of(loss_fn, encode=len)
    assert caught.value.more == "two-pass"


def test_a_loss_of_pieces_takes_one():
    assert Form.of(lambda piece: piece).encoders is None
    with pytest.raises(SplitError, match="loss_fn cannot be called with one piece") as caught:
        Form.of(lambda x, y: x)
    assert caught.value.more == "split"


def test_a_loss_of_two_passes_may_take_more_or_say_nothing():
    for loss_fn in (lambda *given: given, lambda a, b, c=1: a, nn.MSELoss(), print, max):
        assert Form.of(loss_fn, encode=len).loss_fn is loss_fn


def test_images_that_are_cut_apart_are_not_added_up():
    model = nn.Conv2d(1, 1, 3, padding=1)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.0))
    images = torch.randn(2, 1, 24, 24)

    def pooled(piece):
        return model(piece).sum((2, 3))

    def loss_fn(z, _):
        return z.square().mean()

    def step(split):
        return stepper.step(images, loss_fn, encode=pooled, combine="sum", split=split)

    with pytest.raises(SplitError, match="different images") as caught:
        step(instep.Patches(12, images=1))
    assert caught.value.more == "two-pass"
    together = step(instep.Patches(12))
    assert together.loss == pytest.approx(loss_fn(pooled(images), images).item(), rel=1e-4)
