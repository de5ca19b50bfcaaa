import pytest

from instep.check.execute.factors import common
from tests.check.execute.run import SETUP, events, once, value

LOSS = SETUP + "loss = torch.nn.functional.cross_entropy(model(x), y)\n"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("loss / 4", (0.25,)),
        ("loss * 0.5", (0.5,)),
        ("0.5 * loss / 4", (0.5, 0.25)),
        ("loss.div(4)", (0.25,)),
        ("loss + 1", ()),
        ("loss / 4 + other.mean() / 4", (0.25,)),
        ("loss / 4 + other.mean()", None),
        ("loss + 0.3 * other.mean()", ()),
        ("loss + 0.25 * other.mean()", None),  # may be a division by four
        ("loss / other.mean()", None),
    ],
)
def test_multipliers(text, parts):
    assert value(f"{LOSS}other = model(z)\nv = {text}").parts == parts


def test_an_unknown_divisor_is_kept_with_its_power():
    (part,) = value(LOSS + "v = loss / steps").parts
    assert (part[0].known_as, part[1]) == ("steps", -1)
    (part,) = value(LOSS + "scale = 1 / steps\nv = loss * scale").parts
    assert (part[0].known_as, part[1]) == ("steps", -1)


@pytest.mark.parametrize(
    ("text", "factor"),
    [("loss / 4", 0.25), ("loss / n", None), ("loss", 1.0), ("loss * 2", 2.0)],
)
def test_the_factor_of_a_backward(text, factor):
    (found,) = events(f"{LOSS}({text}).backward()\noptimizer.step()", "backward")
    assert found == ("backward", ("optimizer",), factor)


def test_an_unknown_divisor_is_a_number_if_something_counts_with_it():
    source = """
for i, (x, y) in enumerate(loader):
    (model(x).mean() / steps).backward()
    if (i + 1) % steps == 0:
        optimizer.step()
"""
    assert once(SETUP + source, "backward") == [("backward", ("optimizer",), 1 / 3)]


def test_a_sum_over_a_count_of_the_data_is_a_ragged_mean():
    source = SETUP + "l = torch.nn.functional.nll_loss(model(x), y, reduction='sum')\n"
    made = value(source + "v = l / mask.sum()")
    assert (made.reduction, made.ragged) == ("mean", True)


@pytest.mark.parametrize(
    "count",
    [
        "mask.sum().clamp(min=1)",
        "mask.sum().clamp_min(1.0)",
        "mask.float().sum().clip(1)",
        "torch.clamp(mask.sum(), min=1)",
        "torch.clamp_min(mask.sum(), 1)",
        "max(mask.sum(), 1)",
        "max(1, mask.sum())",
        "(mask.sum() + 1e-8)",
        "(1e-8 + torch.sum(mask))",
        "(y != 0).float().sum().clamp(min=1)",
    ],
)
def test_a_count_that_is_kept_from_being_nothing_is_a_count(count):
    source = SETUP + "l = torch.nn.functional.nll_loss(model(x), y, reduction='sum')\n"
    made = value(f"{source}v = l / {count}")
    assert (made.reduction, made.ragged) == ("mean", True)


@pytest.mark.parametrize(
    "count",
    [
        "max(n, 1)",
        "(n + 1e-8)",
        "n.clamp(min=1)",
        "(mask.sum() + 8)",
        "mask.sum().clamp(max=8)",
        "torch.clamp(mask.sum(), max=8)",
        "max(mask.sum(), 1000)",
        "mask.sum().clamp(min=n)",
        "min(mask.sum(), 1)",
    ],
)
def test_other_numbers_are_none(count):
    source = SETUP + "l = torch.nn.functional.nll_loss(model(x), y, reduction='sum')\n"
    assert value(f"{source}v = l / {count}").ragged is None


def test_losses_of_two_models_belong_to_both():
    made = value(SETUP + "other = torch.nn.Linear(1, 1)\nv = model(x).sum() + other(x).sum()")
    assert {net.known_as for net in made.nets} == {"model", "other"}


def test_products_over_the_batch_couple():
    made = value(SETUP + "a = model(x)\nb = model(y)\nv = a @ b.T")
    assert made.coupled


def test_common_needs_both_to_be_known():
    assert common(None, ()) is None
    assert common((), ()) == ()
