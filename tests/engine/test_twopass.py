"""Losses that couple the samples, in pieces: the gradient of the whole batch, in float64."""

from __future__ import annotations

import copy
import gc
import random
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import instep
from instep.engine.reference import relative_error
from instep.engine.twopass import Sums
from instep.errors import LossError, SplitError
from tests.engine.kit import assert_bit_identical

EXACT = 1e-10
WRONG = 1e-3
SPLITS = [1, 2, 3, 5, 8, 12, 13, 50]
G = torch.Generator().manual_seed(3)
X = torch.randn(13, 6, generator=G, dtype=torch.float64)
NEAR = X + 0.3 * torch.randn(13, 6, generator=G, dtype=torch.float64)
FAR = torch.randn(13, 6, generator=G, dtype=torch.float64)
MASK = torch.rand(13, 4, generator=G, dtype=torch.float64) > 0.6


class Net(nn.Module):
    """A small encoder with a temperature, which only the loss uses."""

    def __init__(self, dropout: float = 0.0, middle: nn.Module | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(
            nn.Linear(6, 9), nn.Tanh(), nn.Dropout(dropout), middle or nn.Identity()
        )
        self.out = nn.Linear(9, 4)
        self.temperature = nn.Parameter(torch.tensor(0.7))
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.body(x))


def info_nce(net: Net, z: Tensor, w: Tensor) -> Tensor:
    scores = F.normalize(z, dim=1) @ F.normalize(w, dim=1).T * net.temperature.exp()
    both = (scores, scores.T)
    return sum(F.cross_entropy(each, torch.arange(len(z))) for each in both) / 2


def triplet(net: Net, z: Tensor, w: Tensor) -> Tensor:
    """The hardest negative of the whole batch."""
    distance = torch.cdist(z, w)
    negative = (distance + 1e3 * torch.eye(len(z), dtype=z.dtype)).amin(1)
    return (distance.diagonal() - negative + net.temperature).relu().mean()


def barlow(net: Net, z: Tensor, w: Tensor) -> Tensor:
    one, other = ((v - v.mean(0)) / v.std(0) for v in (z, w))
    crossed = one.T @ other / len(z)
    return (crossed - torch.eye(4, dtype=z.dtype)).square().sum() * net.temperature


def pooled(net: Net, z: Tensor, w: Tensor) -> Tensor:
    """A bag of samples with one label."""
    return F.cross_entropy((z + w).mean(0, keepdim=True), torch.tensor([2])) * net.temperature


def dice(net: Net, z: Tensor, w: Tensor) -> Tensor:
    p, y = z.sigmoid(), MASK[: len(z)].to(z.dtype)
    return 1 - 2 * (p * y).sum() / (p.sum() + y.sum()) + w.square().mean() * net.temperature


LOSSES = [info_nce, triplet, barlow, pooled, dice]
Loss = Callable[[Net, Tensor, Tensor], Tensor]


def stepper_of(model: nn.Module, **options: Any) -> instep.Stepper:
    still = torch.optim.SGD(model.parameters(), lr=0.0)
    return instep.Stepper(model, still, keep_grads=True, **options)


def gradients(model: nn.Module) -> list[Tensor | None]:
    return [parameter.grad for parameter in model.parameters()]


def whole(net: Net, loss: Loss) -> list[Tensor | None]:
    net = copy.deepcopy(net)
    loss(net, net(X), net(NEAR)).backward()
    return gradients(net)


def two_pass(net: Net, loss: Loss, split: int | None, **options: Any) -> list[Tensor | None]:
    net = copy.deepcopy(net)
    stepper_of(net).step(
        (X, NEAR),
        lambda both, batch: loss(net, *both),
        encode=lambda piece: (net(piece[0]), net(piece[1])),
        split=split,
        **options,
    )
    return gradients(net)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("split", [None, *SPLITS])
def test_the_gradient_is_the_whole_batch_s(loss, split):
    net = Net()
    assert relative_error(two_pass(net, loss, split), whole(net, loss)) < EXACT


@pytest.mark.parametrize("loss", LOSSES)
def test_the_naive_split_is_wrong(loss):
    """The same losses given piece by piece: without teeth the test above would show nothing."""
    net = Net()
    naive = copy.deepcopy(net)
    stepper_of(naive).step(
        (X, NEAR), lambda piece: loss(naive, naive(piece[0]), naive(piece[1])), split=5
    )
    assert relative_error(gradients(naive), whole(net, loss)) > WRONG


@pytest.mark.parametrize("split", [2, 5, 13])
def test_dropout_masks_are_the_same_in_both_passes(split):
    net = Net(dropout=0.5)

    def reference() -> list[Tensor | None]:
        """Encode piece by piece with graph, so that masks are drawn in the same order."""
        other = copy.deepcopy(net)
        torch.manual_seed(7)
        pairs = zip(X.split(split), NEAR.split(split), strict=True)
        parts = [(other(x), other(y)) for x, y in pairs]
        z, w = (torch.cat(part) for part in zip(*parts, strict=True))
        info_nce(other, z, w).backward()
        return gradients(other)

    expected = reference()
    after = torch.get_rng_state()
    torch.manual_seed(7)
    found = two_pass(net, info_nce, split)
    assert relative_error(found, expected) < EXACT
    assert torch.equal(torch.get_rng_state(), after), "the run goes on as after one forward"
    torch.manual_seed(8)
    assert relative_error(two_pass(net, info_nce, split), expected) > WRONG


def test_python_s_and_numpy_s_random_numbers_are_replayed():
    net = Net()

    def encode(piece):
        return net(piece * random.random() + np.random.rand())

    random.seed(1)
    np.random.seed(1)
    stepper_of(net).step(X, lambda z, _: info_nce(net, z, z), encode=encode, split=4)
    after = random.random(), np.random.rand()
    random.seed(1)
    np.random.seed(1)
    for _ in range(4):
        random.random(), np.random.rand()
    assert after == (random.random(), np.random.rand())


@dataclass(frozen=True)
class Found:
    z: Tensor
    extra: dict[str, Any]


class Two(NamedTuple):
    found: Found
    row: Tensor


def test_representations_may_be_any_tree():
    net = Net()
    seen = []

    def encode(piece):
        z = net(piece)
        rows = torch.arange(len(piece))
        extra = {"twice": [2 * z, z.detach()], "rows": rows, "name": "left", "none": None}
        return Two(Found(z, extra), z[:, 0])

    def loss_fn(two, batch):
        seen.append(two)
        extra = two.found.extra
        return info_nce(net, two.found.z, extra["twice"][0]) + two.row.square().mean()

    stepper_of(net).step(X, loss_fn, encode=encode, split=5)
    (two,) = seen
    assert isinstance(two, Two)
    assert isinstance(two.found, Found)
    extra = two.found.extra
    assert extra["name"] == "left"
    assert extra["none"] is None
    assert extra["rows"].tolist() == [*range(5), *range(5), *range(3)]
    assert not extra["rows"].requires_grad
    assert not extra["twice"][1].requires_grad
    assert extra["twice"][0].shape == (13, 4)
    other = Net()
    z = other(X)
    (info_nce(other, z, 2 * z) + z[:, 0].square().mean()).backward()
    assert relative_error(gradients(net), gradients(other)) < EXACT


@pytest.mark.parametrize("split", [1, 4, 13])
def test_several_encoders(split):
    left, right = Net(), nn.Linear(6, 4).double()
    models = nn.ModuleList([left, right])
    update = stepper_of(models).step(
        {"image": X, "text": NEAR},
        lambda found, batch: info_nce(left, found["image"], found["text"]),
        encode={"image": lambda b: left(b["image"]), "text": lambda b: right(b["text"])},
        split=split,
    )
    other = copy.deepcopy(models)
    other.zero_grad()
    loss = info_nce(other[0], other[0](X), other[1](NEAR))
    loss.backward()
    assert relative_error(gradients(models), gradients(other)) < EXACT
    assert update.loss == pytest.approx(loss.item(), rel=1e-12)
    assert update.items == 13


@pytest.mark.parametrize("split", [1, 4, 13])
def test_a_parameter_in_encoder_and_loss_gets_both(split):
    net = Net()

    def loss(net, z, w):
        return info_nce(net, z, w) + (z @ net.out.weight).square().mean()

    assert relative_error(two_pass(net, loss, split), whole(net, loss)) < EXACT


@pytest.mark.parametrize("split", [1, 4, 13])
def test_sums_instead_of_rows(split):
    """A pooled classifier whose feature maps are never together."""
    net = Net()
    seen = []

    def loss_fn(pool, batch):
        seen.append(pool)
        return F.cross_entropy((pool["sum"] / pool["count"])[None], torch.tensor([1]))

    def encode(piece):
        return {"sum": net(piece).sum(0), "count": torch.tensor(len(piece))}

    stepper_of(net).step(X, loss_fn, encode=encode, split=split, combine="sum")
    assert seen[0]["sum"].shape == (4,)
    assert seen[0]["count"] == 13
    other = Net()
    F.cross_entropy(other(X).mean(0, keepdim=True), torch.tensor([1])).backward()
    assert relative_error(gradients(net)[:-1], gradients(other)[:-1]) < EXACT


def test_terms_and_items():
    net = Net()

    def loss_fn(z, batch):
        return {"nce": (info_nce(net, z, z), 13), "size": (z.square().mean(), torch.tensor(52))}

    update = stepper_of(net).step(X, loss_fn, encode=net, split=4)
    other = Net()
    z = other(X)
    (info_nce(other, z, z) + z.square().mean()).backward()
    assert relative_error(gradients(net), gradients(other)) < EXACT
    assert update.losses["size"] == pytest.approx(z.square().mean().item(), rel=1e-12)
    assert update.terms["size"].items == 52
    net.zero_grad()
    update = stepper_of(net).step(X, lambda z, _: (z.square().mean(), 5), encode=net, split=4)
    assert update.items == 5


def test_clipping_and_several_named_optimizers():
    left, right = Net(), nn.Linear(6, 4).double()
    start = copy.deepcopy(left)
    optimizers = {
        name: torch.optim.SGD(model.parameters(), lr=0.1)
        for name, model in {"left": left, "right": right}.items()
    }
    trace = instep.Trace()
    stepper = instep.Stepper([left, right], optimizers, clip_norm=0.01, trace=trace)
    before = copy.deepcopy(right)
    update = stepper.step(
        (X, NEAR),
        lambda both, _: info_nce(left, *both),
        encode=lambda piece: (left(piece[0]), right(piece[1])),
        split=4,
        optimizer="left",
    )
    other, still = copy.deepcopy(start), copy.deepcopy(before)
    info_nce(other, other(X), still(NEAR)).backward()
    norm = nn.utils.clip_grad_norm_(other.parameters(), 0.01)
    assert update.grad_norm == pytest.approx(float(norm), rel=1e-12)
    moved = [(s - p) / 0.1 for s, p in zip(start.parameters(), left.parameters(), strict=True)]
    assert relative_error(moved, gradients(other)) < 1e-10
    assert_bit_identical(right, before)
    assert all(parameter.grad is None for parameter in right.parameters())
    assert len(trace) > 2


def test_fp16_scaling_gives_the_unscaled_gradient():
    torch.manual_seed(0)
    model = nn.Linear(6, 4)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    stepper = stepper_of(model, precision="fp16", scaler=scaler)
    types = []

    def loss_fn(z, batch):
        types.append(z.dtype)
        return barlow_like(z)

    def barlow_like(z):
        return (z.float().T @ z.float() / len(z)).square().sum()

    update = stepper.step(X.float(), loss_fn, encode=model, split=4)
    assert update.skipped is None
    other = copy.deepcopy(model)
    other.zero_grad()
    barlow_like(other(X.float())).backward()
    assert types == [torch.float16]
    assert 1e-6 < relative_error(gradients(model), gradients(other)) < 5e-3


def test_bf16_autocast_is_replayed():
    """The second pass is encoded in the same types: bit for bit what one graph computes."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
    types = []

    def encode(piece):
        z = model(piece)
        types.append(z.dtype)
        return z

    def loss_fn(z, batch):
        return (F.normalize(z.float(), dim=1) @ F.normalize(z.float(), dim=1).T).logsumexp(1).mean()

    stepper_of(model, precision="bf16").step(X.float(), loss_fn, encode=encode, split=13)
    assert types == [torch.bfloat16] * 2
    other = copy.deepcopy(model)
    other.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = loss_fn(other(X.float()), None)
    loss.backward()
    assert relative_error(gradients(model), gradients(other)) == 0.0
    model.zero_grad()
    stepper_of(model, precision="bf16").step(X.float(), loss_fn, encode=encode, split=4)
    assert relative_error(gradients(model), gradients(other)) < 2e-2


def test_bf16_parameters_are_summed_in_float32():
    torch.manual_seed(0)
    model = nn.Linear(6, 4)
    narrow = copy.deepcopy(model).bfloat16()
    model.load_state_dict({k: v.float() for k, v in narrow.state_dict().items()})
    x = torch.randn(512, 6).bfloat16()
    # The gradient of a sum of all: in bf16, 512 equal parts stop adding up at 256 of them.
    loss_fn = lambda z, _: z.float().mean()
    stepper_of(narrow).step(x, loss_fn, encode=narrow, split=1)
    stepper_of(model).step(x.float(), loss_fn, encode=model, split=1)
    assert relative_error(gradients(narrow), gradients(model)) < 5e-3
    blunt = copy.deepcopy(narrow)
    blunt.zero_grad()
    stepper_of(blunt, accumulate_in=None).step(x, loss_fn, encode=blunt, split=1)
    assert relative_error(gradients(blunt), gradients(model)) > 0.3


def test_an_empty_batch_is_skipped():
    net = Net()
    step = stepper_of(net).step
    assert step(X[:0], lambda z, _: z.sum(), encode=net, split=4).skipped == "empty"
    assert step(X[:0], lambda z, _: z.mean(), encode=net).skipped == "empty"


def test_only_one_piece_has_a_graph_at_a_time():
    net = Net()
    alive: set[int] = set()
    most = [0]

    class Heavy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            kept = torch.empty_like(x)
            alive.add(id(kept))
            weakref.finalize(kept, alive.discard, id(kept))
            most[0] = max(most[0], len(alive))
            ctx.kept = kept
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    encode = lambda piece: {"z": Heavy.apply(net(piece)), "first": net(piece)[:, 0]}
    gc.disable()
    try:
        stepper_of(net).step(
            X, lambda found, _: barlow(net, found["z"], found["z"]), encode=encode, split=1
        )
    finally:
        gc.enable()
    assert most == [1]
    assert not alive


def test_a_view_does_not_hold_what_it_is_a_view_of():
    net = Net()
    sizes = []

    def loss_fn(z, batch):
        sizes.append(z.untyped_storage().nbytes())
        return z.square().mean()

    held: list[Tensor] = []

    def encode(piece):
        large = net(piece.repeat(1000, 1)).view(1000, len(piece), 4)
        held.append(weakref.ref(large))
        assert sum(each() is not None for each in held) == 1
        return large[0]

    stepper_of(net).step(X, loss_fn, encode=encode, split=5)
    assert sizes == [13 * 4 * 8]


class Averaging(nn.Module):
    """A buffer that forward writes and uses, one that it replaces, and statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(9)
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.scale.mul_(1.5)
        self.calls = self.calls + 1
        return self.norm(x) * self.scale.clone() * self.calls


def test_buffers_change_once_and_are_replayed():
    net = Net(middle=Averaging())
    other = copy.deepcopy(net)
    stepper_of(net).step(X, lambda z, _: info_nce(net, z, z), encode=net, split=5)
    z = torch.cat([other(part) for part in X.split(5)])
    info_nce(other, z, z).backward()
    assert_bit_identical(net, other)
    assert int(net.body[3].norm.num_batches_tracked) == 3
    assert relative_error(gradients(net), gradients(other)) < EXACT


def test_hooks_on_parameters_see_the_sum_once():
    net = Net()
    seen = []
    net.out.weight.register_hook(lambda gradient: (seen.append(1), gradient * 2)[1])
    stepper_of(net).step(X, lambda z, _: info_nce(net, z, z), encode=net, split=4)
    assert seen == [1]
    other = Net()
    z = other(X)
    info_nce(other, z, z).backward()
    assert relative_error([net.out.weight.grad], [2 * other.out.weight.grad]) < EXACT


def test_checkpoints_and_sparse_gradients_inside():
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.table = nn.Embedding(7, 5, sparse=True)
            self.layer = nn.Linear(5, 4)
            self.double()

        def forward(self, ids):
            run = lambda x: torch.tanh(self.layer(x))
            return torch.utils.checkpoint.checkpoint(run, self.table(ids), use_reentrant=False)

    ids = torch.randint(0, 7, (13,), generator=G)
    model, other = Words(), Words()
    loss = lambda z, _: (z @ z.T).logsumexp(1).mean()
    stepper_of(model).step(ids, loss, encode=model, split=4)
    loss(other(ids), None).backward()
    assert model.table.weight.grad.is_sparse
    assert relative_error(gradients(model), gradients(other)) < EXACT


def test_one_tensor_that_two_parameters_are_given_is_not_added_to_twice():
    shared = torch.ones(2)
    sums = Sums(3)
    for _ in range(3):
        sums.add([shared, shared, None])
    assert [each is None or each.tolist() for each in sums.totals] == [[3.0, 3.0], [3.0, 3.0], True]
    assert shared.tolist() == [1.0, 1.0]


# -- what is refused --------------------------------------------------------------------------


def refused(kind: type[Exception], match: str, encode: Any, loss: Any = None, **options: Any):
    net = Net()
    start = copy.deepcopy(net)
    stepper = instep.Stepper(net, torch.optim.SGD(net.parameters(), lr=0.1))
    options = {"split": 5, **options}
    batch = options.pop("batch", X)
    with pytest.raises(kind, match=match):
        stepper.step(
            batch,
            lambda z, batch: (loss or (lambda net, z: info_nce(net, z, z)))(net, z),
            encode=encode(net) if callable(encode) else encode,
            **options,
        )
    assert_bit_identical(net, start)
    assert not stepper.is_in_window
    assert all(parameter.grad is None for parameter in net.parameters())


@pytest.mark.parametrize(
    ("match", "encode"),
    [
        ("nothing that a gradient could reach", lambda net: lambda x: net(x).detach()),
        ("nothing that a gradient could reach", torch.no_grad()),
        ("nothing that a gradient could reach", lambda net: lambda x: net(x).argmax(1)),
        ("without a tensor", lambda net: lambda x: None),
        ("do not fit together", lambda net: lambda x: net(x).mean()),
        ("do not fit together", lambda net: lambda x: net(x)[:, : len(x) - 2]),
        ("where \\(5, 4\\) belongs", lambda net: lambda x: net(x).repeat(2, 1)),
        ("returned \\(1, 4\\) for piece 0", lambda net: lambda x: net(x).mean(0, keepdim=True)),
        ("for piece", lambda net: lambda x: net(x[x[:, 0] > 0])),
        ("another structure", lambda net: lambda x: {"z": net(x), "n": len(x)}),
        ("another structure", lambda net: lambda x: [net(x)] * len(x)),
        ("layout torch.sparse_coo", lambda net: lambda x: net(x).to_sparse()),
        ("encode is 3", 3),
        ("encode is {}", {}),
    ],
)
def test_representations_that_do_not_fit(match, encode):
    refused(SplitError, match, encode)


def test_options_that_do_not_fit():
    refused(SplitError, "combine is 'mean'", lambda net: net, combine="mean")
    refused(SplitError, "combine is 'sum' without encode", None, combine="sum")
    rows = lambda net: net
    refused(SplitError, r"\(5, 4\) for one piece and \(3, 4\)", rows, combine="sum")
    asked = X.clone().requires_grad_()
    refused(SplitError, "requires a gradient", lambda net: net, batch=asked)


def test_a_second_backward_is_refused():
    def twice(net, z):
        loss = info_nce(net, z, z)
        torch.autograd.grad(loss, net.out.weight, retain_graph=True)
        return loss

    refused(LossError, "a second backward", lambda net: net, twice)


def test_gradients_by_representations_in_the_loss_are_fine():
    net = Net()

    def penalised(net, z, w):
        (slope,) = torch.autograd.grad(info_nce(net, z, w), z, create_graph=True)
        return slope.square().sum() + info_nce(net, z, w)

    assert relative_error(two_pass(net, penalised, 4), whole(net, penalised)) < EXACT


def test_what_cannot_be_replayed_is_refused():
    own = torch.Generator().manual_seed(0)
    noise = lambda x: torch.randn(x.shape, generator=own, dtype=x.dtype)
    refused(LossError, "the second time", lambda net: lambda x: net(x + noise(x)))
    refused(
        LossError,
        "the second time",
        lambda net: lambda x: net(x + noise(x)).sum(0),
        lambda net, z: z.square().sum(),
        combine="sum",
    )
    calls = []

    def shrinking(net):
        def encode(x):
            calls.append(1)
            return net(x) if len(calls) <= 3 else net(x)[:1]

        return encode

    refused(LossError, "the second time", shrinking)


def test_reentrant_checkpoints_are_refused():
    def checkpointed(net):
        def encode(x):
            x = x.clone().requires_grad_()
            return torch.utils.checkpoint.checkpoint(net, x, use_reentrant=True)

        return encode

    refused(LossError, "reentrant activation checkpoints", checkpointed)


def test_a_graph_from_outside_is_refused():
    def outside(net):
        scale = net.temperature.exp()
        return lambda x: net(x) * scale

    refused(LossError, "computed before, outside", outside)


def test_a_loss_that_writes_into_representations():
    net = Net()

    def writes(net, z, w):
        return info_nce(net, z.mul_(2.0).tanh(), w)

    assert relative_error(two_pass(net, writes, 4), whole(net, writes)) < EXACT
