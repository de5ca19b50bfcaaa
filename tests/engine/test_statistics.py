"""BatchNorm in pieces: the whole batch's statistics, and with "exact" the whole gradient."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import instep
from instep.engine.reference import relative_error
from instep.engine.statistics import Statistics
from instep.errors import SplitError
from tests.engine.kit import assert_bit_identical

EXACT = 1e-10
WRONG = 1e-3
G = torch.Generator().manual_seed(5)
IMAGES = torch.randn(10, 3, 6, 6, generator=G, dtype=torch.float64) * 2 + 1
LABELS = torch.randint(0, 4, (10,), generator=G)


def images_net(**options: Any) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 5, 3),
        nn.BatchNorm2d(5, **options),
        nn.ReLU(),
        nn.Conv2d(5, 6, 3),
        nn.BatchNorm2d(6, **options),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(24, 7),
        nn.BatchNorm1d(7, **options),
        nn.Tanh(),
        nn.Linear(7, 4),
    ).double()


def stepper_of(model: nn.Module, **options: Any) -> instep.Stepper:
    still = torch.optim.SGD(model.parameters(), lr=0.0)
    return instep.Stepper(model, still, keep_grads=True, **options)


def gradients(model: nn.Module) -> list[Tensor | None]:
    return [parameter.grad for parameter in model.parameters()]


def labelled(model: nn.Module):
    return lambda piece: F.cross_entropy(model(piece[0]), piece[1])


def trained(net: nn.Module, batch: Any = (IMAGES, LABELS), **options: Any) -> nn.Module:
    net = copy.deepcopy(net)
    options = {"split": 4, **options}
    stepper_of(net).step(batch, labelled(net), **options)
    return net


def whole(net: nn.Module, batch: Any = (IMAGES, LABELS)) -> nn.Module:
    net = copy.deepcopy(net)
    labelled(net)(batch).backward()
    return net


def error(found: nn.Module, expected: nn.Module) -> float:
    return relative_error(gradients(found), gradients(expected))


VARIANTS = [
    {},
    {"momentum": None},
    {"momentum": 0.3, "eps": 1e-2},
    {"track_running_stats": False},
    {"affine": False},
]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("split", [1, 2, 4, 9, 10])
def test_exact_is_the_whole_batch_s_gradient(variant, split):
    net = images_net(**variant)
    expected = whole(net)
    found = trained(net, split=split, batchnorm="exact")
    assert error(found, expected) < EXACT
    assert_bit_identical(found, expected)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("split", [2, 4])
def test_window_is_the_whole_batch_s_forward(variant, split):
    net = images_net(**variant)
    expected = whole(net)
    found = copy.deepcopy(net)
    outputs = []

    def loss_fn(piece):
        out = found(piece[0])
        if torch.is_grad_enabled():
            outputs.append(out.detach())
        return F.cross_entropy(out, piece[1])

    update = stepper_of(found).step((IMAGES, LABELS), loss_fn, split=split, batchnorm="window")
    again = copy.deepcopy(net)
    out = again(IMAGES)
    assert relative_error([torch.cat(outputs)], [out]) < 1e-13
    assert update.loss == pytest.approx(F.cross_entropy(out, LABELS).item(), rel=1e-13)
    assert_bit_identical(found, expected)
    # What flows through the statistics is estimated: nearer than each piece by itself, not exact.
    assert WRONG < error(found, expected) < error(trained(net, split=split), expected)


def test_without_a_word_each_piece_has_its_own_statistics():
    net = images_net()
    plain = trained(net)
    assert_bit_identical(plain, trained(net, batchnorm="piece"))
    assert int(plain[1].num_batches_tracked) == 3
    assert error(plain, whole(net)) > WRONG


def test_window_in_one_piece_is_exact():
    """The estimate from all samples is the truth; also where a layer is called by keyword."""

    class Named(nn.Module):
        def __init__(self, norm: nn.Module) -> None:
            super().__init__()
            self.norm = norm

        def forward(self, x):
            return self.norm(input=x)

    net = images_net()
    for _ in range(2):
        for mode in ("window", "exact"):
            assert error(trained(net, split=10, batchnorm=mode), whole(net)) < EXACT
        net[1] = Named(net[1])


def test_volumes_and_sequences():
    torch.manual_seed(0)
    volumes = nn.Sequential(
        nn.Conv3d(1, 3, 2), nn.BatchNorm3d(3), nn.ReLU(), nn.Flatten(), nn.Linear(24, 4)
    ).double()
    x = torch.randn(10, 1, 3, 3, 3, generator=G, dtype=torch.float64)
    sequences = nn.Sequential(
        nn.Conv1d(2, 4, 2), nn.BatchNorm1d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 4)
    ).double()
    y = torch.randn(10, 2, 5, generator=G, dtype=torch.float64)
    for net, batch in ((volumes, (x, LABELS)), (sequences, (y, LABELS))):
        expected = whole(net, batch)
        found = trained(net, batch, batchnorm="exact")
        assert error(found, expected) < EXACT
        assert_bit_identical(found, expected)


class Branches(nn.Module):
    """One layer used twice, branches that join again, and one layer in eval mode."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(6, 5), nn.Linear(5, 5)
        self.norm, self.other, self.frozen = (nn.BatchNorm1d(5) for _ in range(3))
        self.out = nn.Linear(5, 4)
        self.double()
        self.frozen.eval()

    def forward(self, x: Tensor) -> Tensor:
        a = torch.tanh(self.norm(self.first(x)))
        b = torch.tanh(self.norm(self.second(a)))
        return self.out(self.frozen(self.other(self.first(x)).sigmoid() + b * a))


def test_layers_used_twice_and_branches():
    net = Branches()
    batch = (IMAGES.flatten(1)[:, :6], LABELS)
    expected = whole(net, batch)
    for split in (1, 4):
        found = trained(net, batch, split=split, batchnorm="exact")
        assert error(found, expected) < EXACT
        assert_bit_identical(found, expected)
    assert int(found.norm.num_batches_tracked) == 2
    assert int(found.frozen.num_batches_tracked) == 0


@pytest.mark.parametrize("split", [1, 4, 10])
def test_with_encode(split):
    net = images_net()
    other = nn.Linear(108, 4).double()

    def coupled(z, w):
        scores = F.normalize(z, dim=1) @ F.normalize(w, dim=1).T
        return F.cross_entropy(scores * 5, torch.arange(len(z)))

    expected, still = copy.deepcopy(net), copy.deepcopy(other)
    coupled(expected(IMAGES), still(IMAGES.flatten(1))).backward()
    for mode in ("window", "exact"):
        found = nn.ModuleList([copy.deepcopy(net), copy.deepcopy(other)])
        stepper_of(found).step(
            IMAGES,
            lambda both, _: coupled(both["a"], both["b"]),
            encode={"a": found[0], "b": lambda x: found[1](x.flatten(1))},  # noqa: B023
            split=split if mode == "exact" else max(split, 2),
            batchnorm=mode,
        )
        assert_bit_identical(found[0], expected)
        difference = error(found[0], expected)
        assert difference < EXACT if mode == "exact" else (difference > WRONG) is (split < 10)


def test_items_terms_and_pieces_without_items():
    net = images_net()
    labels = torch.tensor([1, 2, -100, 0, -100, -100, -100, -100, 3, -100])

    def terms(model):
        def loss_fn(piece):
            out, y = model(piece[0]), piece[1]
            loss = F.cross_entropy(out, y)
            return {"label": (loss, (y != -100).sum()), "size": (out.square().mean(), out.numel())}

        return loss_fn

    found = copy.deepcopy(net)
    update = stepper_of(found).step((IMAGES, labels), terms(found), split=4, batchnorm="exact")
    expected = copy.deepcopy(net)
    result = terms(expected)((IMAGES, labels))
    sum(loss for loss, _ in result.values()).backward()
    assert error(found, expected) < EXACT
    assert update.terms["label"].items == 4
    assert update.losses["label"] == pytest.approx(result["label"][0].item(), rel=1e-12)


def test_the_statistics_pass_draws_no_random_numbers():
    net = images_net()
    net.append(nn.Dropout(0.5))
    torch.manual_seed(3)
    found = trained(net, batchnorm="window")
    after = torch.get_rng_state()
    torch.manual_seed(3)
    trained(net)
    assert torch.equal(torch.get_rng_state(), after)
    # And dropout after the last BatchNorm leaves "exact" exact, for the masks that were drawn.
    torch.manual_seed(3)
    exact = trained(net, batchnorm="exact", split=10)
    torch.manual_seed(3)
    assert error(exact, whole(net)) < EXACT
    assert error(found, exact) > WRONG


def test_other_buffers_change_as_without_the_statistics_pass():
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            return x

    net = images_net()
    net.append(Counting())
    for mode in ("window", "exact"):
        assert int(trained(net, batchnorm=mode)[-1].calls) == 3


def test_under_autocast():
    net = images_net().float()
    batch = (IMAGES.float(), LABELS)
    expected = copy.deepcopy(net)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(expected(batch[0]), batch[1])
    loss.backward()
    for mode in ("window", "exact"):
        found = copy.deepcopy(net)
        update = stepper_of(found, precision="bf16").step(
            batch, labelled(found), split=4, batchnorm=mode
        )
        assert update.loss == pytest.approx(loss.item(), rel=2e-2)
        assert relative_error([found[1].running_var], [expected[1].running_var]) < 1e-6
        # Weights cast without a graph would leave the convolutions without any gradient.
        assert all(parameter.grad is not None for parameter in found.parameters())
    assert error(found, expected) < 0.1


def test_without_batchnorm_nothing_is_added():
    net = nn.Sequential(nn.Flatten(), nn.Linear(108, 4)).double()
    calls = []
    found = copy.deepcopy(net)
    found.register_forward_hook(lambda *_: calls.append(1))
    for mode in ("window", "exact"):
        found.zero_grad()
        stepper_of(found).step((IMAGES, LABELS), labelled(found), split=4, batchnorm=mode)
        assert error(found, whole(net)) < EXACT
    assert len(calls) == 6


def test_the_rounds_are_as_many_as_the_depth():
    """λ is exact after as many rounds as layers depend on each other; fewer are not enough."""
    net = images_net()
    passes = []
    original = Statistics.pull

    def counting(self, gradients):
        passes.append(original(self, gradients))
        return passes[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Statistics, "pull", counting)
        trained(net, batchnorm="exact")
        assert len(passes) == 3
        assert min(passes) > 1e-6
        patch.setattr(Statistics, "depth", 2)
        assert error(trained(net, batchnorm="exact"), whole(net)) > 1e-6


# -- what is refused --------------------------------------------------------------------------


def refused(net: nn.Module, match: str, **options: Any) -> None:
    start = copy.deepcopy(net)
    stepper = stepper_of(net)
    with pytest.raises(SplitError, match=match):
        stepper.step((IMAGES, LABELS), labelled(net), split=4, **options)
    assert_bit_identical(net, start)
    assert "forward" not in vars(net[1])
    assert all(module.training for module in net.modules())


def test_an_unknown_mode_is_refused():
    refused(images_net(), "batchnorm is 'global'", batchnorm="global")


def test_one_value_per_channel_is_refused():
    net = images_net()
    stepper = stepper_of(net)
    with pytest.raises(SplitError, match="one value per channel"):
        stepper.step((IMAGES, LABELS), labelled(net), split=9, batchnorm="window")


def test_sync_batchnorm_is_refused():
    net = nn.SyncBatchNorm.convert_sync_batchnorm(images_net())
    refused(net, "SyncBatchNorm", batchnorm="window")


def test_a_forward_of_its_own_is_refused_where_it_would_be_replaced():
    class Activated(nn.BatchNorm2d):
        def forward(self, x):
            return super().forward(x).relu()

    net = images_net()
    net[1] = Activated(5).double()
    expected = whole(net)
    assert_bit_identical(trained(net, batchnorm="window"), expected)
    refused(net, "1 is a Activated with a forward of its own", batchnorm="exact")


def test_dropout_before_batchnorm_has_no_exact_gradient():
    net = images_net()
    net[2] = net[5] = nn.Dropout(0.5)
    refused(net, "do not add up", batchnorm="exact")
    assert trained(net, batchnorm="window")[1].weight.grad is not None


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_dead_and_far_channels_are_no_disagreement(dtype):
    """Channels that never change, and such with a mean far larger than their spread."""
    net = images_net().to(dtype)
    with torch.no_grad():
        net[0].weight[0] = 0
        net[1].bias[0] = 0.5  # off the kink of the ReLU, where rounding would decide
        net[0].bias[1] = 3000
    batch = (IMAGES.to(dtype), LABELS)
    found = trained(net, batch, split=3, batchnorm="exact")
    assert error(found, whole(net, batch)) < (1e-9 if dtype == torch.float64 else 1e-2)


def test_another_number_of_calls_is_refused():
    class Sometimes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm2d(5)

        def forward(self, x):
            times = 2 if len(x) == self.most else 1
            for _ in range(times):
                x = self.norm(x)
            return x

    for most in (10, 4):
        for mode in ("window", "exact"):
            net = images_net()
            net[1] = Sometimes().double()
            net[1].most = most
            refused(net, "another number of times", batchnorm=mode)


def test_layers_that_are_never_called_are_refused():
    net = images_net()
    net[1] = nn.Identity()
    net[4] = nn.Identity()
    net[8] = nn.Identity()
    net[0].unused = nn.BatchNorm1d(2)
    refused(net, "no call of a BatchNorm layer", batchnorm="window")


# -- inputs that need no gradient -------------------------------------------------------------


@pytest.mark.parametrize("split", [1, 3, 4, 10])
def test_exact_where_the_input_of_a_layer_needs_no_gradient(split):
    """A layer at the start, and one behind a frozen backbone."""
    torch.manual_seed(0)
    batch = (IMAGES.flatten(1)[:, :6], LABELS)
    first = nn.Sequential(
        nn.BatchNorm1d(6), nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 4)
    ).double()
    frozen = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Tanh(), first).double()
    frozen[:2].requires_grad_(requires_grad=False)
    alone = nn.Sequential(nn.BatchNorm1d(6, affine=False), nn.Linear(6, 4)).double()
    for net in (first, frozen, alone):
        expected = whole(net, batch)
        found = trained(net, batch, split=split, batchnorm="exact")
        assert error(found, expected) < EXACT
        assert_bit_identical(found, expected)


def test_exact_with_a_representation_that_no_parameter_reaches():
    """Statistics are variables of the second pass, through which it would have a graph."""
    torch.manual_seed(0)
    x = IMAGES.flatten(1)[:, :6]
    net = nn.ModuleList([nn.BatchNorm1d(6, affine=False), nn.Linear(6, 6)]).double()

    def encode(model):
        def both(piece):
            fixed = model[0](piece)
            return fixed, model[1](fixed)

        return both

    def coupled(z, _):
        return F.cross_entropy(z[0] @ z[1].T, torch.arange(len(z[0])))

    expected, found = copy.deepcopy(net), copy.deepcopy(net)
    coupled(encode(expected)(x), x).backward()
    stepper_of(found).step(x, coupled, encode=encode(found), split=4, batchnorm="exact")
    assert error(found, expected) < EXACT
