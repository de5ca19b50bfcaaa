"""Patches against the whole image, in float64; and what is refused, by name."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn
from torch.nn import functional

import instep
from benchmarks.splits.networks import EXACT, INEXACT, Residual, UNet, plain, super_resolution
from instep.engine.reference import relative_error
from instep.errors import InstepWarning, SplitError

EXACTLY = 1e-10


def gradient(model, batch, loss_fn, split):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    stepper = instep.Stepper(model, optimizer, keep_grads=True)
    model.zero_grad()
    update = stepper.step(batch, loss_fn, split=split)
    return [p.grad.clone() for p in model.parameters()], update


def dense(make, shape):
    torch.manual_seed(0)
    model = make().double()
    image = torch.randn(shape, dtype=torch.float64)
    target = torch.randn_like(model(image).detach())

    def loss_fn(piece):
        return (model(piece[0]) - piece[1]).square().mean()

    return model, (image, target), loss_fn


@pytest.mark.parametrize("name", EXACT)
def test_the_gradient_over_patches_is_the_whole_images(name):
    make, shape, patch = EXACT[name]
    model, batch, loss_fn = dense(make, shape)
    whole, update = gradient(model, batch, loss_fn, None)
    pieces, cut = gradient(model, batch, loss_fn, instep.Patches(patch))
    assert cut.micro_batches > 3
    assert relative_error(pieces, whole) < EXACTLY
    assert cut.loss == pytest.approx(update.loss, rel=1e-12)
    assert cut.items == batch[1].shape[0] * batch[1][0, 0].numel()


@pytest.mark.parametrize("name", [n for n in EXACT if "separable" not in n])
def test_independent_patches_have_another_gradient(name):
    """Else the test above could not fail."""
    make, shape, patch = EXACT[name]
    model, batch, loss_fn = dense(make, shape)
    whole, _ = gradient(model, batch, loss_fn, None)
    pieces, _ = gradient(model, batch, loss_fn, instep.Patches(patch, halo=0))
    assert relative_error(pieces, whole) > 1e-3


@pytest.mark.parametrize("name", INEXACT)
def test_what_cannot_be_exact_is_refused_by_name(name):
    make, named = INEXACT[name]
    model = make()
    split = instep.Patches(32)
    before = [p.clone() for p in model.state_dict().values()]
    with pytest.raises(SplitError) as caught:
        split.plan(torch.randn(1, 3, 128, 96), [model])
    assert named in str(caught.value)
    after = list(model.state_dict().values())
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("name", INEXACT)
def test_approximate_goes_on_and_says_so(name):
    make, named = INEXACT[name]
    model, batch, loss_fn = dense(make, (1, 3, 96, 96))
    with pytest.warns(InstepWarning, match="do not add up") as caught:
        gradient(model, batch, loss_fn, instep.Patches(48, approximate=True))
    assert named in str(caught[0].message)


def test_an_odd_size_that_resizes_by_an_odd_factor_is_refused_and_an_even_one_is_not():
    model = UNet("size")
    instep.Patches(32).plan(torch.randn(1, 3, 128, 96), [model])
    with pytest.raises(SplitError, match="no multiple of the stride 8"):
        instep.Patches(32).plan(torch.randn(1, 3, 127, 96), [model])


def test_frozen_batchnorm_and_channel_norms_are_exact():
    make = lambda: Residual(norm=lambda: nn.BatchNorm2d(8)).eval()
    model, batch, loss_fn = dense(make, (1, 3, 60, 61))
    whole, _ = gradient(model, batch, loss_fn, None)
    pieces, _ = gradient(model, batch, loss_fn, instep.Patches(24))
    assert relative_error(pieces, whole) < EXACTLY


def test_ignored_pixels_do_not_count():
    torch.manual_seed(0)
    model = UNet().double()
    image = torch.randn(2, 3, 75, 66, dtype=torch.float64)
    target = torch.randint(0, 2, (2, 75, 66))
    target[:, 20:60, 10:50] = 255
    target[1] = 255

    def loss_fn(piece):
        return functional.cross_entropy(model(piece["image"]), piece["mask"], ignore_index=255)

    batch = {"image": image, "mask": target, "name": ["a", "b"]}
    expected = torch.autograd.grad(loss_fn(batch), list(model.parameters()))
    split = instep.Patches(24, ignore=255, images=1)
    pieces, update = gradient(model, batch, loss_fn, split)
    assert update.items == int((target != 255).sum())
    assert relative_error(pieces, expected) < EXACTLY


def test_several_inputs_and_targets_are_cut_together():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.coarse = nn.Conv2d(2, 4, 3, padding=1)
            self.fine = nn.Conv2d(3, 4, 3, padding=1)
            self.head = nn.Conv2d(4, 1, 3, padding=1)

        def forward(self, image, depth):
            low = functional.interpolate(self.coarse(depth), scale_factor=2)
            high = torch.relu(self.fine(image) + low)
            return {"full": self.head(high), "half": functional.avg_pool2d(high, 2)}

    @dataclasses.dataclass
    class Batch:
        image: torch.Tensor
        depth: torch.Tensor
        full: torch.Tensor
        half: torch.Tensor
        camera: torch.Tensor

    torch.manual_seed(0)
    model = Two().double()
    made = lambda *shape: torch.randn(shape, dtype=torch.float64)
    batch = Batch(
        made(2, 3, 64, 44),
        made(2, 2, 32, 22),
        made(2, 1, 64, 44),
        made(2, 4, 32, 22),
        made(2, 3, 4),
    )

    def loss_fn(piece):
        out = model(piece.image, piece.depth)
        full = (out["full"] - piece.full).square()
        half = (out["half"] - piece.half).abs() * piece.camera.mean()
        return {"full": (full.mean(), full.numel()), "half": (half.mean(), half.numel())}

    split = instep.Patches((16, 20), inputs=("image", "depth"), uncut="camera")
    whole, _ = gradient(model, batch, loss_fn, None)
    pieces, cut = gradient(model, batch, loss_fn, split)
    assert cut.micro_batches == 12
    assert relative_error(pieces, whole) < EXACTLY


def test_one_axis_is_cut_or_none():
    model, batch, loss_fn = dense(lambda: super_resolution(2), (1, 3, 40, 41))
    whole, _ = gradient(model, batch, loss_fn, None)
    for patch, pieces in ((100, 1), ((16, 100), 3), ((100, 16), 3)):
        found, update = gradient(model, batch, loss_fn, instep.Patches(patch))
        assert update.micro_batches == pieces
        assert relative_error(found, whole) < EXACTLY


def test_an_axis_that_is_not_cut_may_be_looked_at_whole():
    model, batch, loss_fn = dense(RowMean, (1, 3, 30, 30))
    whole, _ = gradient(model, batch, loss_fn, None)
    pieces, update = gradient(model, batch, loss_fn, instep.Patches((10, 30)))
    assert update.micro_batches == 3
    assert relative_error(pieces, whole) < EXACTLY
    with pytest.raises(SplitError, match="RowMean"):
        instep.Patches(10).plan(batch, [model])


class RowMean(nn.Module):
    """Looks along rows without end, along columns not at all."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)

    def forward(self, x):
        return self.conv(x) - x.mean(3, keepdim=True)


def test_the_probe_is_done_once_per_model_and_remainder(monkeypatch):
    calls = []
    import instep.splits.patches as module

    real = module.certify
    monkeypatch.setattr(module, "certify", lambda *a, **k: calls.append(1) or real(*a, **k))
    model, split = UNet(), instep.Patches(32)
    for size in (64, 72, 128, 69, 77):
        split.plan(torch.randn(1, 3, size, 64), [model])
    assert len(calls) == 2
    model.eval()
    split.plan(torch.randn(1, 3, 64, 64), [model])
    assert len(calls) == 3


def test_the_probe_leaves_no_trace():
    model = Residual(norm=lambda: nn.Sequential(nn.BatchNorm2d(8).eval(), nn.Dropout(0.5)))
    random, grads = torch.get_rng_state(), [p.grad for p in model.parameters()]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    split = instep.Patches(32)
    split.plan(torch.randn(1, 3, 100, 100, generator=torch.Generator().manual_seed(1)), [model])
    assert torch.equal(random, torch.get_rng_state())
    assert [p.grad for p in model.parameters()] == grads
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in state.items())
    assert not model._forward_hooks


def test_a_smaller_halo_reports_its_error():
    model = Residual("reflect")
    image = torch.randn(1, 3, 200, 200)
    small = instep.Patches(64, halo=4).certify(image, model)
    enough = instep.Patches(64, halo=10).certify(image, model)
    assert not small.is_exact
    assert 1e-4 < small.error < 1
    assert enough.is_exact
    assert enough.error < EXACTLY
    assert "halo=4" in str(small)


def test_a_gradient_that_is_right_does_not_make_outputs_right():
    """What has no weights has no part in this gradient, but it has in the loss's."""

    class Blurred(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 1)

        def forward(self, x):
            return self.conv(x) + functional.avg_pool2d(x, 9, 1, 4)

    image = torch.randn(1, 3, 200, 200)
    small = instep.Patches(64, halo=1).certify(image, Blurred())
    assert small.error < EXACTLY
    assert small.output_error > 1e-3
    assert not small.is_exact
    assert instep.Patches(64, halo=4).certify(image, Blurred()).is_exact


def test_the_proof_needs_no_gradients_around_it():
    with torch.no_grad():
        small = instep.Patches(64, halo=4).certify(torch.randn(1, 3, 200, 200), Residual())
    assert 1e-4 < small.error < 1


def test_the_model_must_be_called_on_the_patch():
    model = plain()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    image = torch.randn(1, 3, 40, 40)
    for loss_fn, message in (
        (lambda x: model[0](x).mean(), "was not called"),
        (lambda x: model(x[..., 1:]).mean(), "was called on"),
    ):
        with pytest.raises(SplitError, match=message):
            stepper.step(image, loss_fn, split=instep.Patches(16))
        assert not stepper.is_in_window
        assert not model._forward_hooks
        assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patch": 0}, "patch is 0"),
        ({"patch": ()}, "patch is"),
        ({"patch": 2.5}, "patch is"),
        ({"patch": (16,)}, "1 numbers"),
        ({"patch": 16, "halo": -1}, "halo is"),
        ({"patch": 16, "halo": "big"}, "halo is"),
        ({"patch": 16, "images": 0}, "images is"),
        ({"patch": 16, "inputs": "picture"}, "not in the batch"),
        ({"patch": 16, "uncut": 7}, "not in the batch"),
    ],
)
def test_options_that_mean_nothing_are_refused(options, message):
    with pytest.raises(SplitError, match=message):
        instep.Patches(**options).plan((torch.randn(1, 3, 40, 40),), [plain()])


def test_who_compares_with_the_image_itself_is_told_how():
    """A residual: the patch that is read is larger than what it answers for."""
    image = torch.randn(1, 3, 96, 96)
    model = plain()

    def loss_fn(piece):
        return functional.l1_loss(model(piece[0])[:, :3] + piece[0], piece[1])

    with pytest.raises(RuntimeError, match="size of tensor") as caught:
        gradient(model, (image, image), loss_fn, instep.Patches(32))
    assert "pass it once more, as a target" in "".join(caught.value.__notes__)


def test_targets_of_another_size_are_refused():
    batch = (torch.randn(1, 3, 40, 40), torch.randn(1, 3, 39, 40))
    with pytest.raises(SplitError, match="fits no output"):
        instep.Patches(16).plan(batch, [plain()])
    with pytest.raises(SplitError, match="cannot be cut with images"):
        instep.Patches(16, halo=0).plan(batch, [plain()])
    with pytest.raises(SplitError, match="no image to cut"):
        instep.Patches(16).plan(torch.randn(4, 3), [plain()])
    with pytest.raises(SplitError, match="which of 2 models"):
        instep.Patches(16).plan(batch[0], [plain(), plain()])


def test_verify_takes_patches():
    model, batch, loss_fn = dense(plain, (1, 3, 40, 40))
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert instep.verify(stepper, batch, loss_fn, split=instep.Patches(16)).ok
    assert not instep.verify(stepper, batch, loss_fn, split=instep.Patches(16, halo=0)).ok


def test_what_is_joined_comes_apart_again():
    model, batch, _ = dense(lambda: super_resolution(2), (3, 3, 40, 41))
    plan = instep.Patches(16, images=2).plan(batch, [model])
    parts = []
    for piece in plan:
        with piece.around():
            parts.append(model(piece.value[0]))
    whole = plan.join(parts)
    assert torch.allclose(whole, model(batch[0]), atol=1e-12)
    assert all(torch.equal(plan.part(whole, k), part) for k, part in enumerate(parts))


class Made(nn.Module):
    """A forward and the layers it uses."""

    def __init__(self, forward, *layers):
        super().__init__()
        self.made, self.layers = forward, nn.ModuleList(layers)

    def forward(self, x, **options):
        return self.made(self.layers, x, **options)


def conv(size=3):
    return nn.Conv2d(3, 3, size, padding=size // 2)


REAL = {
    "values that are rare": (
        lambda m, x: m[0](x) + m[1]((x == 0).to(x.dtype)),
        (3, 21),
        {},
    ),
    "an argument": (lambda m, x, wide=False: m[wide](x), (3, 9), {"wide": True}),
    "a size": (lambda m, x: m[x.shape[-1] > 30](x), (3, 3), {}),
}


@pytest.mark.parametrize("name", REAL)
def test_what_only_real_images_show_is_refused_at_the_first_step(name):
    forward, sizes, options = REAL[name]
    torch.manual_seed(0)
    model = Made(forward, *map(conv, sizes)).double()
    image = torch.randn(1, 3, 90, 80, dtype=torch.float64)
    image[torch.rand_like(image) < 0.1] = 0
    before = [p.clone() for p in model.parameters()]
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(SplitError, match="on these images"):
        stepper.step(image, lambda x: model(x, **options).square().mean(), split=instep.Patches(16))
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert not stepper.is_in_window


@pytest.mark.parametrize(
    "use", [lambda m, x: m(x.flip(-1)).flip(-1), lambda m, x: m(functional.avg_pool2d(x, 3, 1, 1))]
)
def test_a_model_that_is_called_on_something_else_is_refused(use):
    model = nn.Sequential(conv(), conv()).double()
    image = torch.randn(1, 3, 70, 61, dtype=torch.float64)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(SplitError, match="on these images"):
        stepper.step(image, lambda x: use(model, x).square().mean(), split=instep.Patches(16))


def test_noise_in_the_loss_function_is_no_reason_to_refuse():
    model = nn.Sequential(conv(), conv())
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))

    def denoising(piece):
        noisy = piece[0] + 0.1 * torch.randn_like(piece[0])
        return (model(noisy) - piece[1]).square().mean()

    image = torch.randn(1, 3, 60, 60)
    update = stepper.step((image, image), denoising, split=instep.Patches(16))
    assert update.skipped is None


def test_the_trial_leaves_no_trace_and_is_made_once():
    torch.manual_seed(0)
    model = nn.Sequential(conv(), nn.Dropout(0.3), nn.BatchNorm2d(3).eval(), conv())
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.0))
    dropping = []

    def loss_fn(x):
        dropping.append(model[1].training)
        return model(x).square().mean()

    split, image = instep.Patches(16), torch.randn(1, 3, 40, 40)
    start = torch.get_rng_state()
    first = stepper.step(image, loss_fn, split=split)
    assert dropping == [False] * 6 + [True] * 9
    torch.set_rng_state(start)
    again = stepper.step(image, loss_fn, split=split)
    assert dropping == [False] * 6 + [True] * 18
    assert again.loss == first.loss


def test_a_model_that_was_changed_is_looked_at_again():
    model, batch, loss_fn = dense(plain, (1, 3, 60, 50))
    split = instep.Patches(16)
    gradient(model, batch, loss_fn, split)
    model[1] = nn.AvgPool2d(9, 1, 4)
    model[2].dilation, model[2].padding = (3, 3), (6, 6)
    whole, _ = gradient(model, batch, loss_fn, None)
    pieces, _ = gradient(model, batch, loss_fn, split)
    assert relative_error(pieces, whole) < EXACTLY


def test_a_forward_that_changes_buffers_is_refused():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = conv()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            return self.conv(x) * (1 + 0.1 * self.calls)

    with pytest.raises(SplitError, match="changes its buffers"):
        instep.Patches(16).plan(torch.randn(1, 3, 40, 40), [Counting()])


def test_images_that_see_each_other_are_not_taken_apart():
    model = Made(lambda m, x: m[0](x) - m[0](x).mean(0, keepdim=True), conv()).double()
    image = torch.randn(3, 3, 40, 40, dtype=torch.float64)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(SplitError, match="beside other images"):
        stepper.step(image, lambda x: model(x).square().mean(), split=instep.Patches(16, images=1))


def test_labels_that_are_no_class_do_not_count_and_targets_that_disagree_say_nothing():
    torch.manual_seed(0)
    model = UNet().double()
    image = torch.randn(1, 3, 64, 48, dtype=torch.float64)
    labels = torch.randint(0, 2, (1, 64, 48))
    labels[:, :40] = 255

    def loss_fn(piece):
        return functional.cross_entropy(model(piece[0]), piece[1], ignore_index=255)

    whole, _ = gradient(model, (image, labels), loss_fn, None)
    pieces, update = gradient(model, (image, labels), loss_fn, instep.Patches(16))
    assert relative_error(pieces, whole) < EXACTLY
    assert update.items == int((labels != 255).sum())
    depth = torch.randn(1, 1, 64, 48, dtype=torch.float64)
    with pytest.raises(instep.InstepError, match="without its items"):
        gradient(model, (image, labels, depth), loss_fn, instep.Patches(16))


def test_a_size_that_the_model_refuses_is_told_with_its_stride():
    model = nn.Sequential(nn.PixelUnshuffle(4), nn.Conv2d(48, 16, 3, padding=1), nn.PixelShuffle(4))
    for options in ({}, {"approximate": True}):
        with pytest.raises(
            SplitError, match=r"201 pixels \(axis 0\) are no multiple of the stride 4"
        ) as caught:
            instep.Patches(32, **options).plan(torch.randn(1, 3, 201, 100), [model])
        assert "to 204 pixels along axis 0, or crop them to 200." in caught.value.fix
        assert "at 257 pixels, with the same rest, it says" in caught.value.why


def test_an_empty_batch_updates_nothing():
    model = plain()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    update = stepper.step(
        torch.randn(0, 3, 40, 40), lambda x: model(x).mean(), split=instep.Patches(16)
    )
    assert update.skipped == "empty"


def test_a_path_too_weak_to_see_by_comparing_is_seen_by_its_reach():
    model = Made(lambda m, x: m[0](x) + 1e-14 * m[1](x), conv(), conv(21))
    certificate = instep.Patches(32).certify(torch.randn(1, 3, 100, 100), model)
    assert {(r.left, r.right) for axis in certificate.axes for r in axis.reaches} == {(10, 10)}


def test_randomness_that_is_no_dropout_module_is_refused():
    model = Made(lambda m, x: functional.dropout(m[0](x), 0.1), conv())
    with pytest.raises(SplitError, match="draws random numbers"):
        instep.Patches(16).plan(torch.randn(1, 3, 40, 40), [model])


def test_pieces_of_one_shape_are_alike_only_if_they_are_cropped_alike():
    """What is recorded for one of them is replayed for the others."""
    plan = instep.Patches(32).plan(torch.randn(1, 3, 128, 128), [plain()])
    pieces = list(plan)
    shapes = [(tuple(p.value.shape), p.likeness) for p in pieces]
    # Left and right border, top and bottom: the same shapes, cropped at different sides.
    assert len({shape for shape, _ in shapes}) < len(set(shapes)) < len(pieces)
