import pytest

from instep.check.execute.losses import criterion
from tests.check.execute.run import SETUP, evaluated, value


@pytest.mark.parametrize(
    ("kwargs", "reduction"),
    [
        ({}, "mean"),
        ({"reduction": "sum"}, "sum"),
        ({"reduction": object()}, None),
        ({"size_average": False}, "sum"),
        ({"reduce": False}, "none"),
    ],
)
def test_reductions(kwargs, reduction):
    assert criterion("MSELoss", kwargs).reduction == reduction


def test_what_is_contrastive_is_coupled():
    assert criterion("SupConLoss", {}).coupled
    assert criterion("MSELoss", {}).coupled is None


def test_a_loss_comes_from_the_models_of_its_inputs():
    setup = SETUP + "other = torch.nn.Linear(1, 1)"
    made = evaluated("torch.nn.functional.mse_loss(model(x), other(y))", setup)
    assert {net.known_as for net in made.nets} == {"model", "other"}
    assert made.kind == "mse_loss"


def test_a_loss_of_nothing_known_may_come_from_anything():
    assert evaluated("torch.nn.functional.mse_loss(a, b)", SETUP).nets is None


def test_a_loss_of_detached_inputs_has_no_graph():
    assert not evaluated("torch.nn.functional.mse_loss(model(x).detach(), y)", SETUP).graph


def test_uneven_pieces_make_a_ragged_loss():
    source = (
        SETUP
        + """
loader = torch.utils.data.DataLoader(d, batch_size=10)
for x in loader:
    for piece in x.split(4):
        v = torch.nn.functional.mse_loss(model(piece), piece)
"""
    )
    assert value(source).ragged
