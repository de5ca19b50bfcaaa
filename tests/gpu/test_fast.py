"""Captured windows, fused layers, compiled models on a CUDA device, against the portable path."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import instep
from benchmarks.gpu.models import GPT
from instep.engine import captured
from instep.engine.flat_buffers import FlatBuffers
from instep.engine.reference import relative_error
from instep.errors import InstepWarning
from instep.fast.flat import MOST_TERMS

IGNORED = -100
WORDS = 50
FAST = {"fused": True, "capture": True}
WIDE = {"fused": True, "capture": 4}


def net(dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Embedding(WORDS, 64),
        nn.Linear(64, 128),
        nn.GELU(),
        nn.Dropout(dropout),
        nn.Linear(128, WORDS),
    ).cuda()


def gpt() -> nn.Module:
    torch.manual_seed(0)
    return GPT(width=128, layers=2, words=WORDS, length=16).cuda()


def batches() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    made = []
    for _ in range(6):
        x = torch.randint(0, WORDS, (10, 9), generator=generator)
        y = torch.randint(0, WORDS, (10, 9), generator=generator)
        y[::3, ::2] = IGNORED
        made.append((x.cuda(), y.cuda()))
    return made


def train(
    make: Callable[[], nn.Module],
    options: dict[str, Any],
    *,
    fuse: bool = False,
    compiled: bool = False,
    on_device: bool = True,
    reads: bool = False,
) -> tuple[list[Tensor], list[tuple[float, float]]]:
    """Make six updates; return how far the parameters went, and what the updates said."""
    torch._dynamo.reset()
    model = make()
    before = [p.detach().clone() for p in model.parameters()]
    if fuse:
        instep.fuse(model)
    call: Any = torch.compile(model) if compiled else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    stepper = instep.Stepper(model, optimizer, clip_norm=1.0, precision="bf16", **options)

    def loss(piece: tuple[Tensor, Tensor]) -> Any:
        scores = call(piece[0]).flatten(0, 1).float()
        made = functional.cross_entropy(scores, piece[1].flatten(), ignore_index=IGNORED)
        if reads:
            made.item()
        return (made, (piece[1] != IGNORED).sum()) if on_device else made

    told = []
    for batch in batches():
        update = stepper.step(batch, loss, split=2)
        told.append((update.loss, update.items))
    return [p.detach() - q for p, q in zip(model.parameters(), before, strict=True)], told


WAYS: dict[str, dict[str, Any]] = {
    "fused": {"options": {"fused": True}},
    "fuse": {"options": {"fused": True}, "fuse": True},
    "capture": {"options": FAST},
    "fuse, capture": {"options": FAST, "fuse": True},
    "compiled": {"options": {}, "compiled": True},
    "compiled, capture": {"options": FAST, "compiled": True},
    "compiled, fuse": {"options": {"fused": True}, "compiled": True, "fuse": True},
    "compiled, fuse, capture": {"options": FAST, "compiled": True, "fuse": True},
    "side by side": {"options": WIDE},
    "fuse, side by side": {"options": WIDE, "fuse": True},
    "compiled, fuse, side by side": {"options": WIDE, "compiled": True, "fuse": True},
}


@pytest.mark.parametrize("make", [net, gpt])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("on_device", [False, True], ids=["counts known", "counts on the device"])
def test_every_fast_way_makes_the_portable_update(
    make: Callable[[], nn.Module], way: str, *, on_device: bool
) -> None:
    expected, told = train(make, {}, on_device=on_device)
    with warnings.catch_warnings():
        warnings.simplefilter("error", InstepWarning)
        found, again = train(make, on_device=on_device, **WAYS[way])
    # Both round to bf16, in different places.
    assert relative_error(found, expected) < 2e-2
    for (loss, items), (other, count) in zip(told, again, strict=True):
        assert loss == pytest.approx(other, rel=2e-2)
        assert items == count


def test_what_reads_the_device_is_said_once_and_runs() -> None:
    expected, _ = train(net, {})
    with pytest.warns(InstepWarning, match="cannot be recorded") as caught:
        found, _ = train(net, FAST, reads=True)
    assert len([w for w in caught if issubclass(w.category, InstepWarning)]) == 1
    assert relative_error(found, expected) < 2e-2


def test_dropout_draws_anew_in_every_replay() -> None:
    model = net(dropout=0.5)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.0), **FAST)
    x, _ = batches()[0]
    losses = [
        stepper.step(x, lambda piece: model(piece).square().mean(), split=2).loss for _ in range(6)
    ]
    assert all(one != other for one, other in pairwise(losses))


def test_what_is_one_shape_too_many_runs_as_usual() -> None:
    model = nn.Linear(4, 4).cuda()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1), **FAST)
    reference = nn.Linear(4, 4).cuda()
    reference.load_state_dict(model.state_dict())
    portable = instep.Stepper(reference, torch.optim.SGD(reference.parameters(), lr=0.1))
    with pytest.warns(InstepWarning, match="no further kinds"):
        for rows in range(1, captured.SHAPES + 3):
            x = torch.randn(rows * 6, 4, device="cuda")
            stepper.step(x, lambda piece: model(piece).square().mean(), split=rows)
            portable.step(x, lambda piece: reference(piece).square().mean(), split=rows)
    found, expected = ([p.detach() for p in m.parameters()] for m in (model, reference))
    assert relative_error(found, expected) < 1e-5


@pytest.fixture
def in_full() -> Iterator[None]:
    """Let products be those of fp32; by hand: pytest deletes what it has not found as a member."""
    settings = torch.backends.cuda.matmul
    before, settings.allow_tf32 = settings.allow_tf32, False
    yield
    settings.allow_tf32 = before


@pytest.mark.usefixtures("in_full")
def test_in_fp32_a_captured_window_has_the_portable_gradient() -> None:
    gradients, kinds = [], []
    for options in ({}, FAST):
        model, trace = net(), instep.Trace()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        stepper = instep.Stepper(model, optimizer, keep_grads=True, trace=trace, **options)
        for x, y in batches():
            stepper.step(
                (x, y),
                lambda piece, model=model: functional.cross_entropy(
                    model(piece[0]).flatten(0, 1), piece[1].flatten(), ignore_index=IGNORED
                ),
                split=2,
            )
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
        kinds.append([type(event).__name__ for event in trace])
    assert relative_error(gradients[1], gradients[0]) < 1e-6
    assert kinds[0] == kinds[1]


# -- side by side ------------------------------------------------------------------------------


def perceptron(*between: nn.Module) -> nn.Module:
    """Return a net whose kernels add in one order only, so that sums can be compared by bits."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(24, 512), *between, nn.GELU(), nn.Linear(512, 8)).cuda()


def gradients_of(
    options: dict[str, Any], pieces: int, *, fuse: bool, layers: tuple[nn.Module, ...] = ()
) -> tuple[list[Tensor], list[float]]:
    """Open six windows of pieces of 4 rows without moving; return the last gradient, the losses."""
    model = perceptron(*layers)
    if fuse:
        instep.fuse(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    stepper = instep.Stepper(model, optimizer, keep_grads=True, precision="bf16", **options)
    generator = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(6):
        x = torch.randn(4 * pieces, 24, generator=generator).cuda()
        update = stepper.step(x, lambda piece: model(piece).float().square().mean(), split=4)
        losses.append(update.loss)
    return [p.grad.clone() for p in model.parameters() if p.grad is not None], losses


@pytest.mark.parametrize("fuse", [False, True])
@pytest.mark.parametrize("pieces", [4, 7, 16])
@pytest.mark.parametrize("width", [2, 3, 8])
def test_side_by_side_is_one_after_the_other_to_the_last_bit(
    pieces: int, width: int, *, fuse: bool
) -> None:
    expected, losses = gradients_of(FAST, pieces, fuse=fuse)
    found, again = gradients_of({"fused": True, "capture": width}, pieces, fuse=fuse)
    assert again == losses
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_statistics_that_run_along_keep_micro_steps_in_order() -> None:
    expected, losses = gradients_of(FAST, 8, fuse=False, layers=(nn.BatchNorm1d(512).cuda(),))
    with pytest.warns(InstepWarning, match="running_mean") as caught:
        found, again = gradients_of(WIDE, 8, fuse=False, layers=(nn.BatchNorm1d(512).cuda(),))
    assert len([w for w in caught if issubclass(w.category, InstepWarning)]) == 1
    assert again == losses
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_what_fails_only_side_by_side_runs_in_order() -> None:
    model = perceptron()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.0), **WIDE)
    recorded = []

    def loss(piece: Tensor) -> Tensor:
        if torch.cuda.is_current_stream_capturing():
            recorded.append(None)
            if len(recorded) == 3:  # the single was the first, a branch the second
                raise RuntimeError("not beside another one")
        return model(piece).square().mean()

    x = torch.randn(32, 24, device="cuda")
    with pytest.warns(InstepWarning, match="not beside another one"):
        first = stepper.step(x, loss, split=4).loss
    assert stepper.step(x, loss, split=4).loss == pytest.approx(first, rel=1e-5)
    assert first == pytest.approx(model(x).square().mean().item(), rel=1e-5)


@pytest.mark.filterwarnings("error::instep.errors.InstepWarning")
def test_patches_side_by_side() -> None:
    torch.manual_seed(0)
    x = torch.rand(1, 3, 96, 96, device="cuda")
    found = []
    for options in (FAST, {"fused": True, "capture": 8}):
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.GELU(), nn.Conv2d(8, 3, 3, padding=1)
        ).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        stepper = instep.Stepper(model, optimizer, **options)
        split = instep.Patches(16)
        for _ in range(4):
            update = stepper.step(
                (x, x),
                lambda pair, model=model: (model(pair[0]) - pair[1]).square().mean(),
                split=split,
            )
        found.append(([p.detach().clone() for p in model.parameters()], update.loss))
    assert relative_error(found[1][0], found[0][0]) < 1e-6
    assert found[1][1] == pytest.approx(found[0][1], rel=1e-6)


# -- what changes between windows ----------------------------------------------------------------


def test_a_window_of_nan_leaves_nothing_behind() -> None:
    def losses(options: dict[str, Any]) -> list[Any]:
        model = instep.fuse(perceptron())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        stepper = instep.Stepper(model, optimizer, precision="bf16", **options)
        generator = torch.Generator().manual_seed(1)
        told = []
        for index in range(6):
            x = torch.randn(32, 24, generator=generator).cuda()
            if index == 3:
                x[5] = float("nan")
            update = stepper.step(x, lambda piece: model(piece).float().square().mean(), split=4)
            told.append((update.skipped, update.loss if index != 3 else 0.0, update.items))
        return told

    with pytest.warns(InstepWarning, match="finite"):
        expected = losses({"fused": True})
    for options in (FAST, WIDE):
        with pytest.warns(InstepWarning, match="finite"):
            found = losses(options)
        assert [one[0] for one in found] == [None, None, None, "non-finite", None, None]
        for (_, loss, items), (_, other, count) in zip(found, expected, strict=True):
            assert loss == pytest.approx(other, rel=1e-3)
            assert items == count


@pytest.mark.parametrize("options", [FAST, WIDE], ids=["capture", "side by side"])
def test_layers_that_are_frozen_and_thawed_between_windows(options: dict[str, Any]) -> None:
    found = []
    for chosen in ({}, options):
        model = perceptron()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        stepper = instep.Stepper(model, optimizer, **chosen)
        generator = torch.Generator().manual_seed(1)
        for index in range(9):
            model[0].requires_grad_(index < 3 or index >= 6)
            x = torch.randn(32, 24, generator=generator).cuda()
            stepper.step(x, lambda piece, m=model: m(piece).square().mean(), split=4)
        found.append([p.detach().clone() for p in model.parameters()])
    assert relative_error(found[1], found[0]) < 1e-5


def test_nothing_is_collected_while_a_graph_is_recorded() -> None:
    # The memory of a stepper that is gone would be waited for in the middle of a recording.
    model = perceptron()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1), **FAST)
    seen = []

    def loss(piece: Tensor) -> Tensor:
        seen.append((torch.cuda.is_current_stream_capturing(), gc.isenabled()))
        return model(piece).square().mean()

    for _ in range(3):
        stepper.step(torch.randn(32, 24).cuda(), loss, split=4)
    assert set(seen) == {(False, True), (True, False)}
    assert gc.isenabled()


@pytest.mark.filterwarnings("error::instep.errors.InstepWarning")
def test_first_products_are_those_of_zeros_and_sums() -> None:
    for pieces in (3, 8, 9):
        expected, losses = gradients_of({"fused": True}, pieces, fuse=True)
        for options in (FAST, {"fused": True, "capture": 2}, WIDE):
            found, again = gradients_of(options, pieces, fuse=True)
            assert relative_error(found, expected) < 1e-5
            assert again == pytest.approx(losses, rel=1e-5)


# -- losses with denominators of their own ---------------------------------------------------------


def terms_of(model: nn.Module, piece: Tensor, count: int, *, on_device: bool = False) -> Any:
    """Return that many losses, each a mean over its own number of items."""
    out = model(piece).to(torch.promote_types(piece.dtype, torch.float32))
    found: dict[str, tuple[Tensor, Any]] = {
        "all": (out.square().mean(), len(piece)),
        "first": (out[:1].abs().mean(), 1),
        "cubes": (out.pow(3).mean(), 3 * len(piece)),
        "half": (out[:, :4].square().mean(), 2 * len(piece)),
        "last": (out[-1:].square().mean(), 5),
    }
    found = dict(list(found.items())[:count])
    if on_device:
        found = {name: (one, torch.tensor(n).cuda()) for name, (one, n) in found.items()}
    return found


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-2, weight_decay=0.1)


def momentum(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def trained_on_terms(
    count: int,
    dtype: torch.dtype = torch.float32,
    make: Callable[[Any], torch.optim.Optimizer] = momentum,
    *,
    on_device: bool = False,
    **options: Any,
) -> tuple[list[Tensor], list[float]]:
    """Train on that many losses; return the parameters and the norms of the gradients."""
    model = perceptron().to(dtype)
    stepper = instep.Stepper(model, make(model.parameters()), clip_norm=0.5, **options)
    generator = torch.Generator().manual_seed(1)
    norms = []
    for rows in (8, 5, 7, 6):
        x = torch.randn(rows, 24, generator=generator).cuda().to(dtype)
        update = stepper.step(
            x, lambda piece: terms_of(model, piece, count, on_device=on_device), split=2
        )
        assert update.skipped is None
        norms.append(update.grad_norm)
    return [p.detach().clone() for p in model.parameters()], norms


@pytest.mark.usefixtures("in_full")
@pytest.mark.parametrize("count", range(2, MOST_TERMS + 2))
@pytest.mark.parametrize("make", [adamw, momentum])
@pytest.mark.parametrize("on_device", [False, True], ids=["counts known", "counts on the device"])
def test_a_factor_for_each_denominator_is_the_portable_update(
    count: int, make: Callable[[Any], torch.optim.Optimizer], *, on_device: bool
) -> None:
    options: dict[str, Any] = {"make": make, "on_device": on_device}
    found, norms = trained_on_terms(count, fused=True, **options)
    expected, others = trained_on_terms(count, **options)
    assert relative_error(found, expected) < 1e-6
    assert norms == pytest.approx(others, rel=1e-6)
    wide = {"dtype": torch.float64, **options}
    truth, lengths = trained_on_terms(count, **wide)
    assert norms == pytest.approx(lengths, rel=1e-5)
    exact, again = trained_on_terms(count, fused=True, **wide)
    assert relative_error(exact, truth) < 1e-12
    assert again == pytest.approx(lengths, rel=1e-12)


@pytest.mark.parametrize("count", range(2, MOST_TERMS + 1))
def test_buffers_of_several_denominators_are_not_merged(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("gradients were written back")

    monkeypatch.setattr(FlatBuffers, "merge", refuse)
    trained_on_terms(count, fused=True)


def test_bfloat16_parameters_with_several_denominators() -> None:
    """Gradients are not rounded to bf16 before the update, so it may be nearer to the truth."""
    together = nn.utils.parameters_to_vector
    truth = together(trained_on_terms(3, torch.float64)[0])
    off = []
    for options in ({"fused": True}, {}):
        found, _ = trained_on_terms(3, torch.bfloat16, **options)
        off.append(relative_error([together(found)], [truth]))
    assert off[0] < 1.2 * off[1]


@pytest.mark.parametrize("bad", ["all", "first", "cubes"])
def test_a_term_that_is_not_finite_moves_nothing(bad: str) -> None:
    model = perceptron()
    stepper = instep.Stepper(model, adamw(model.parameters()), clip_norm=0.5, fused=True)
    x = torch.randn(8, 24).cuda()
    assert stepper.step(x, lambda piece: terms_of(model, piece, 3), split=2).skipped is None
    before = [p.detach().clone() for p in model.parameters()]

    def loss(piece: Tensor) -> Any:
        terms = terms_of(model, piece, 3)
        return terms | {bad: (terms[bad][0] * float("inf"), terms[bad][1])}

    with pytest.warns(InstepWarning, match="skipped"):
        assert stepper.step(x, loss, split=2).skipped == "non-finite"
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))


@pytest.mark.usefixtures("in_full")
@pytest.mark.filterwarnings("ignore::instep.errors.InstepWarning")
def test_a_loss_scale_and_several_denominators() -> None:
    made = []
    for options in ({"fused": True}, {}):
        model = perceptron()
        optimizer = momentum(model.parameters())
        stepper = instep.Stepper(model, optimizer, precision="fp16", clip_norm=0.5, **options)
        generator = torch.Generator().manual_seed(1)
        skipped = []
        for _ in range(6):
            x = torch.randn(8, 24, generator=generator).cuda() * 4
            update = stepper.step(x, lambda piece, m=model: terms_of(m, piece, 3), split=2)
            skipped.append(update.skipped)
        scale = stepper.scaler.get_scale() if stepper.scaler is not None else None
        made.append(([p.detach().clone() for p in model.parameters()], skipped, scale))
    assert made[0][1:] == made[1][1:]
    assert relative_error(made[0][0], made[1][0]) < 1e-5
