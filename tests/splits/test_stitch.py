"""Stitched outputs against the whole image's, in float64; and what is refused, by name."""

from __future__ import annotations

import warnings
import weakref
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import instep
from benchmarks.splits.networks import EXACT, INEXACT, Residual, UNet, plain, super_resolution
from instep.errors import InstepWarning, SplitError
from instep.splits import stitch as module
from tests.splits.arrays import Counting

EXACTLY = 1e-12


def whole(model, image):
    with torch.no_grad():
        return model(image)


def made(make, shape):
    torch.manual_seed(0)
    return make().double().eval(), torch.randn(shape, dtype=torch.float64)


def distance(found, expected):
    assert found.shape == expected.shape
    return float((found - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize("name", EXACT)
def test_the_output_is_the_whole_images(name):
    make, shape, patch = EXACT[name]
    model, image = made(make, shape)
    expected = whole(model, image)
    for batch in (1, 4):
        assert distance(instep.stitch(model, image, patch, batch=batch), expected) < EXACTLY


@pytest.mark.parametrize("name", [n for n in EXACT if "separable" not in n])
def test_without_a_halo_it_is_another_one(name):
    """Else the test above could not fail."""
    make, shape, patch = EXACT[name]
    model, image = made(make, shape)
    assert distance(instep.stitch(model, image, patch, halo=0), whole(model, image)) > 1e-3


@pytest.mark.parametrize("name", INEXACT)
def test_what_cannot_be_exact_is_refused_by_name(name):
    make, named = INEXACT[name]
    model = make()
    with warnings.catch_warnings(), pytest.raises(SplitError) as caught:
        warnings.simplefilter("ignore", InstepWarning)
        instep.stitch(model, torch.randn(1, 3, 128, 96), 48)
    assert named in caught.value.why
    assert "overlap=" in caught.value.fix
    assert "approximate=True" in caught.value.fix
    assert "model.eval()" in caught.value.fix


def test_approximate_goes_on_and_says_so_and_overlap_says_nothing():
    model, image = made(lambda: Residual(norm=lambda: nn.GroupNorm(2, 8)), (1, 3, 128, 128))
    with pytest.warns(InstepWarning, match="blocks.0.1"):
        rough = instep.stitch(model, image, 64, approximate=True)
    expected = whole(model, image)
    assert 1e-6 < distance(rough, expected) < 0.5
    blended = instep.stitch(model, image, 64, overlap=16)
    assert 1e-6 < distance(blended, expected) < 0.5


@pytest.mark.parametrize("blend", ["linear", "gaussian"])
@pytest.mark.parametrize("factor", [1, 2, 4])
def test_blended_windows_of_a_pixelwise_model_are_the_whole(blend, factor):
    """Whatever the weights are, they sum to one, also at borders and in the last windows."""
    make = lambda: nn.Sequential(nn.Conv2d(3, 2 * factor**2, 1), nn.PixelShuffle(factor))
    model, image = made(make, (2, 3, 45, 53))
    expected = whole(model, image)
    for batch in (1, 3):
        found = instep.stitch(model, image, (16, 20), overlap=(5, 0), blend=blend, batch=batch)
        assert distance(found, expected) < EXACTLY


def test_blended_windows_agree_with_the_obvious_loop():
    model, image = made(plain, (1, 3, 40, 52))
    total, weights = torch.zeros(1, 3, 40, 52).double(), torch.zeros(40, 52).double()
    ramp = ((torch.arange(16).minimum(15 - torch.arange(16)) + 0.5) / 4).clamp(max=1).double()
    for top in (0, 12, 24):
        for left in (0, 12, 24, 36):
            place = (..., slice(top, top + 16), slice(left, left + 16))
            total[place] += whole(model, image[place]) * ramp * ramp[:, None]
            weights[place] += ramp * ramp[:, None]
    found = instep.stitch(model, image, 16, overlap=4)
    assert distance(found, total / weights) < EXACTLY


def test_smaller_outputs_are_blended_where_they_have_whole_pixels():
    class Pyramid(nn.Module):
        def forward(self, x):
            return [x, functional.avg_pool2d(x, 4)]

    image = torch.randn(1, 2, 51, 47).double()
    full, small = instep.stitch(Pyramid(), image, 16, overlap=6)
    assert distance(full, image) < EXACTLY
    assert distance(small, functional.avg_pool2d(image, 4)) < EXACTLY


def test_an_axis_that_is_not_cut_may_have_any_scale():
    model = nn.AvgPool2d((1, 4))
    image = torch.randn(1, 2, 40, 10).double()
    assert distance(instep.stitch(model, image, 16, overlap=6), model(image)) < EXACTLY


def test_narrow_types_are_blended_in_float32():
    image = torch.randn(1, 2, 40, 40).bfloat16()
    found = instep.stitch(nn.Identity(), image, 16, overlap=4)
    assert found.dtype is torch.float32
    assert torch.allclose(found, image.float(), atol=1e-6)


@dataclass
class Outputs:
    full: torch.Tensor
    rest: dict


class Several(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x):
        h = self.conv(x)
        half = functional.avg_pool2d(h, 2)
        return Outputs(h, {"half": half, "labels": h.argmax(1), "name": "several"})


def test_several_outputs_have_their_own_scales_and_structure(tmp_path):
    model, image = made(Several, (2, 3, 44, 36))
    expected = whole(model, image)
    out = Outputs(
        np.full((2, 4, 44, 36), np.nan),
        {"half": tmp_path / "half.npy", "labels": torch.full((2, 44, 36), -1), "name": None},
    )
    for given in (None, out):
        found = instep.stitch(model, image, 16, out=given)
        assert isinstance(found, Outputs)
        assert distance(torch.as_tensor(found.full), expected.full) < EXACTLY
        half = found.rest["half"]
        half = half if given is None else torch.from_numpy(half)
        assert distance(half, expected.rest["half"]) < EXACTLY
        assert torch.equal(found.rest["labels"], expected.rest["labels"])
        assert found.rest["name"] == "several"
    assert np.load(tmp_path / "half.npy").shape == (2, 4, 22, 18)
    with pytest.raises(SplitError, match="the model returns a Outputs"):
        instep.stitch(model, image, 16, out=tmp_path / "all.npy")


@pytest.mark.parametrize("dims", [1, 3])
def test_signals_and_volumes(dims):
    conv = nn.Conv1d if dims == 1 else nn.Conv3d
    make = lambda: nn.Sequential(conv(2, 4, 5, padding=2), nn.ReLU(), conv(4, 1, 3, padding=1))
    model, image = made(make, (2, 2, *[(331,), (), (19, 24, 21)][dims - 1]))
    found = instep.stitch(model, image, 64 if dims == 1 else (8, 12, 30), batch=2)
    assert distance(found, whole(model, image)) < EXACTLY


def test_an_image_that_is_no_larger_than_a_patch_is_run_as_it_is():
    model, image = made(lambda: Residual(norm=lambda: nn.InstanceNorm2d(8)), (3, 3, 30, 40))
    assert distance(instep.stitch(model, image, 40, batch=2), whole(model, image)) < EXACTLY
    pooled = nn.Sequential(model, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    assert distance(instep.stitch(pooled, image, 40), whole(pooled, image)) < EXACTLY


def test_samples_may_be_left_out():
    model, image = made(plain, (1, 3, 50, 41))
    found = instep.stitch(model, image[0], (16, 16))
    assert distance(found, whole(model, image)[0]) < EXACTLY
    blended = instep.stitch(nn.Identity(), image[0], (16, 16), overlap=4)
    assert distance(blended, image[0]) < EXACTLY


@pytest.mark.parametrize("overlap", [None, 8])
def test_only_a_tile_is_read_and_written_at_a_time(overlap):
    model, image = made(plain, (1, 3, 200, 160))
    source = Counting(image.numpy())
    out = Counting(np.full((1, 3, 200, 160), np.nan))
    found = instep.stitch(model, source, 32, overlap=overlap, out=out)
    assert found is out
    assert source.largest <= 3 * (32 + 2 * 4) ** 2
    assert out.largest <= 3 * 32**2
    expected = instep.stitch(model, image, 32, overlap=overlap)
    assert distance(torch.from_numpy(out.array), expected) < EXACTLY


def test_files_to_files(tmp_path):
    model, image = made(lambda: super_resolution(2), (1, 3, 70, 60))
    np.save(tmp_path / "image.npy", image.numpy())
    found = instep.stitch(model, tmp_path / "image.npy", 24, out=str(tmp_path / "made.npy"))
    assert isinstance(found, np.memmap)
    stored = torch.from_numpy(np.load(tmp_path / "made.npy"))
    assert distance(stored, whole(model, image)) < EXACTLY


@pytest.mark.parametrize("overlap", [None, 8])
def test_a_real_zarr_array(overlap):
    zarr = pytest.importorskip("zarr")
    model, image = made(plain, (1, 3, 70, 60))
    source, out = (
        zarr.create_array(store={}, shape=(1, 3, 70, 60), chunks=(1, 3, 32, 32), dtype="float64")
        for _ in range(2)
    )
    source[:] = image.numpy()
    instep.stitch(model, source, 24, overlap=overlap, out=out)
    expected = instep.stitch(model, image, 24, overlap=overlap)
    assert distance(torch.from_numpy(out[:]), expected) < EXACTLY


def test_nothing_is_written_over_the_image(tmp_path):
    model, image = made(plain, (1, 3, 50, 40))
    path = tmp_path / "image.npy"
    np.save(path, image.numpy())
    mapped = np.load(path, mmap_mode="r+")
    array = np.array(mapped)
    for given, out in (
        (image, image),
        (image, image.view(1, 3, 50, 40)),
        (image, image.numpy()),
        (array, array[:]),
        (path, str(path)),
        (path, mapped),
        (mapped, path),
        (mapped, {"out": [mapped]}),
    ):
        with pytest.raises(SplitError, match="where the image is"):
            instep.stitch(model, given, 16, out=out)
    assert np.array_equal(np.load(path), image.numpy())


@pytest.mark.parametrize("overlap", [None, 8])
def test_outputs_of_tiles_do_not_pile_up(overlap):
    alive, most = [], []

    class Watched(nn.Conv2d):
        def forward(self, x):
            if x.dtype is torch.float32:
                most.append(sum(reference() is not None for reference in alive))
            result = super().forward(x)
            alive.append(weakref.ref(result))
            return result

    instep.stitch(Watched(1, 1, 3, padding=1), torch.randn(1, 1, 128, 128), 32, overlap=overlap)
    assert len(most) >= 16
    assert max(most) == 0


def test_whole_numbers_are_prepared():
    model, _ = made(plain, (1, 3, 8, 8))
    image = np.random.default_rng(0).integers(0, 256, (1, 3, 61, 47), dtype=np.uint8)
    prepare = lambda tile: tile.double() / 255
    found = instep.stitch(model, image, 16, prepare=prepare)
    assert distance(found, whole(model, prepare(torch.from_numpy(image)))) < EXACTLY
    with pytest.raises(SplitError, match="prepare=lambda tile"):
        instep.stitch(model, image, 16)
    with pytest.raises(SplitError, match="prepare makes something else"):
        instep.stitch(model, image, 16, prepare=lambda tile: tile.double() - tile.double().mean())


def test_labels_come_out_as_labels_and_are_not_blended():
    class Labels(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3, padding=1)

        def forward(self, x):
            return self.conv(x).argmax(1)

    model, image = made(Labels, (1, 3, 50, 50))
    assert torch.equal(instep.stitch(model, image, 20), whole(model, image))
    with pytest.raises(SplitError, match="cannot be blended"):
        instep.stitch(model, image, 20, overlap=4)


def test_a_model_without_weights_and_a_function():
    image = torch.randn(1, 2, 50, 50).double()
    pool = nn.AvgPool2d(3, 1, 1)
    assert distance(instep.stitch(pool, image, 20), pool(image)) < EXACTLY
    assert distance(instep.stitch(lambda x: 2 * x, image, 20, overlap=4), 2 * image) < EXACTLY
    with pytest.raises(SplitError, match="the model is a function"):
        instep.stitch(lambda x: 2 * x, image, 20)


def test_nothing_of_the_model_changes_and_no_graph_is_kept():
    model = Residual(norm=lambda: nn.Sequential(nn.BatchNorm2d(8).eval(), nn.Dropout(0.5)))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [m.training for m in model.modules()]
    image = torch.randn(1, 3, 80, 80)
    copy = image.clone()
    with pytest.warns(InstepWarning, match="training mode") as caught:
        found = instep.stitch(model, image, 32)
    assert "`blocks.0.1.1` (Dropout) and 3 more" in str(caught[0].message)
    assert [m.training for m in model.modules()] == modes
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in before.items())
    assert torch.equal(image, copy)
    assert not found.requires_grad
    assert not found.is_inference()
    (found * nn.Parameter(torch.ones(()))).sum().backward()


def test_an_inplace_model_does_not_reach_the_image():
    model = nn.Sequential(nn.ReLU(inplace=True), nn.Conv2d(1, 1, 3, padding=1))
    image = np.random.default_rng(0).standard_normal((1, 1, 50, 50)).astype("float32")
    copy = image.copy()
    instep.stitch(model, image, 20)
    instep.stitch(model, image, 64)
    assert np.array_equal(image, copy)


def test_it_works_where_gradients_are_off():
    model, image = made(plain, (1, 3, 50, 41))
    expected = whole(model, image)
    for off in (torch.no_grad(), torch.inference_mode()):
        fresh = plain().double().eval()
        fresh.load_state_dict(model.state_dict())
        with off:
            assert distance(instep.stitch(fresh, image, 16), expected) < EXACTLY


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_the_proof_compares_gradients_also_where_they_are_off(off, monkeypatch):
    seen = []
    real = module.certify
    monkeypatch.setattr(module, "certify", lambda *a, **k: seen.append(real(*a, **k)) or seen[-1])
    model, image = made(Residual, (1, 3, 200, 200))
    with off():
        instep.stitch(model, image, 64, halo=4)
    assert 1e-4 < seen[0].error < 1


def test_the_probe_is_done_once_until_the_model_changes(monkeypatch):
    calls = []
    real = module.certify
    monkeypatch.setattr(module, "certify", lambda *a, **k: calls.append(1) or real(*a, **k))
    model, image = made(UNet, (1, 3, 96, 64))
    for _ in range(3):
        instep.stitch(model, image, 32)
        instep.stitch(model, torch.cat([image, image], 2), 32)
    assert len(calls) == 1
    model.head = nn.Conv2d(6, 2, 5, padding=2).double().eval()
    found = instep.stitch(model, image, 32)
    assert len(calls) == 2
    assert distance(found, whole(model, image)) < EXACTLY


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patch": 0}, "patch is 0"),
        ({"patch": ()}, r"patch is \(\)"),
        ({"patch": (16,) * 4}, "the image is of shape"),
        ({"image": torch.randn(3, 40)}, "the image is of shape"),
        ({"image": torch.randn(1, 3, 0, 40)}, "the image is of shape"),
        ({"image": "a picture"}, "the image is str"),
        ({"image": "nowhere.npy"}, "no file"),
        ({"halo": -1}, "halo is -1"),
        ({"halo": "big"}, "halo is 'big'"),
        ({"halo": 4, "overlap": 4}, "a halo"),
        ({"overlap": 16}, "overlap is 16"),
        ({"overlap": 0.25}, "overlap is 0.25"),
        ({"overlap": (4,)}, "overlap is"),
        ({"overlap": 4, "blend": "cubic"}, "blend is 'cubic'"),
        ({"batch": 0}, "batch is 0"),
        ({"device": "meta"}, "device is 'meta', the model is on 'cpu'"),
        ({"out": "made.tif"}, "made.tif"),
        ({"out": 3}, "out is a int"),
        ({"out": torch.zeros(1, 3, 40, 41)}, "out has the shape"),
        ({"out": torch.zeros(1, 3, 40, 40, dtype=torch.uint8)}, "out is of type torch.uint8"),
        ({"out": np.zeros((1, 3, 40, 40), dtype=">i2")}, "out is of type"),
        ({"model": nn.Conv2d(3, 3, 3), "overlap": 4}, "of a window of 16 x 16"),
        ({"model": lambda x: x.mean(), "overlap": 4}, "the first dimension"),
        ({"model": lambda x: x.mean((1, 2, 3)), "overlap": 4}, "of a window of 16 x 16"),
    ],
)
def test_options_that_mean_nothing_are_refused(options, message):
    options = {"model": plain().eval(), "image": torch.randn(1, 3, 40, 40), "patch": 16} | options
    with pytest.raises(SplitError, match=message):
        instep.stitch(**options)


@pytest.mark.parametrize("size", [(70, 61), (71, 64), (65, 67), (66, 62)])
def test_blended_outputs_have_the_whole_size_where_a_stride_does_not_divide_it(size):
    """Whether a model rounds up or down at the end."""
    image = torch.randn(2, 1, *size, dtype=torch.float64)
    up = nn.Conv2d(1, 1, 1, stride=2).double()
    down = nn.Conv2d(1, 1, 2, stride=2).double()
    both = Both(up, down)
    for model in (up, down, both, nn.Conv2d(1, 1, 1, stride=4).double()):
        found = instep.stitch(model, image, 32, overlap=8, batch=2)
        expected = whole(model, image)
        pairs = zip(found, expected, strict=True) if model is both else [(found, expected)]
        for one, other in pairs:
            assert distance(one, other) < EXACTLY
    # With padding, only borders of windows differ.
    padded = nn.Conv2d(1, 1, 3, stride=2, padding=1).double()
    assert instep.stitch(padded, image, 32, overlap=8).shape == padded(image).shape


class Both(nn.Module):
    def __init__(self, *parts):
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x):
        return [part(x) for part in self.parts]


def test_an_end_that_a_model_makes_anything_of_is_refused():
    def padded(x):
        """Pads to whole multiples of 16: 33 pixels become 48."""
        more = [-x.shape[-1] % 16, -x.shape[-2] % 16]
        return functional.avg_pool2d(functional.pad(x, (0, more[0], 0, more[1])), 2)

    with pytest.raises(SplitError, match="the last window"):
        instep.stitch(padded, torch.randn(1, 1, 70, 61), 32, overlap=8)


COUPLED = [
    lambda x: x - x.mean(0, keepdim=True),
    lambda x: x * len(x),
    lambda x: x / x.abs().max(),
    lambda x: x.softmax(0),
]


@pytest.mark.parametrize("model", COUPLED)
@pytest.mark.parametrize("image", [torch.randn(2, 1, 64, 64), torch.full((1, 1, 64, 64), 0.5)])
def test_tiles_are_not_run_together_if_the_model_couples_them(model, image):
    """Also where the first tiles do not show it, because all are alike."""
    instep.stitch(model, image, 32, overlap=8)
    with pytest.raises(SplitError, match="batch=4") as caught:
        instep.stitch(model, image, 32, overlap=8, batch=4)
    assert "leave batch out" in caught.value.fix


def test_whether_tiles_are_coupled_is_tried_without_a_trace():
    norm = nn.BatchNorm2d(1)
    state = torch.get_rng_state()
    image = torch.randn(1, 1, 64, 64, generator=torch.Generator().manual_seed(0))
    with pytest.warns(InstepWarning, match="training mode"), pytest.raises(SplitError):
        instep.stitch(norm, image, 32, overlap=8, batch=2)
    # One window was run to know the scale of the output.
    assert int(norm.num_batches_tracked) == 1
    assert torch.equal(torch.get_rng_state(), state)


def test_random_models_are_run_together_as_before():
    with pytest.warns(InstepWarning, match="training mode"):
        found = instep.stitch(nn.Dropout(0.5), torch.ones(1, 1, 64, 64), 32, overlap=8, batch=4)
    assert found.shape == (1, 1, 64, 64)


def test_a_model_that_was_changed_is_looked_at_again():
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 1, 3, padding=1)).double().eval()
    image = torch.randn(1, 1, 60, 50, dtype=torch.float64)
    instep.stitch(model, image, patch=16)
    model[0].dilation, model[0].padding = (5, 5), (5, 5)
    model[0].forward = lambda x: torch.nn.functional.avg_pool2d(x, 9, 1, 4)
    made = instep.stitch(model, image, patch=16)
    assert torch.allclose(made, model(image), atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"overlap": 8}])
@pytest.mark.parametrize("make", [UNet, plain])
def test_an_image_without_the_dimension_of_samples_is_named(make, options):
    model, image = made(make, (1, 3, 64, 80))
    with pytest.raises(SplitError, match=r"\(3, 64, 80\) has no dimension of samples") as caught:
        instep.stitch(model, image[0], 32, **options)
    assert "image[None]" in caught.value.fix
    assert "patch=(32, 32)" in caught.value.fix
    assert instep.stitch(model, image[0], (32, 32), **options).shape[-2:] == (64, 80)


def test_a_model_that_runs_neither_way_has_its_own_error():
    class Broken(nn.Module):
        def forward(self, x):
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        instep.stitch(Broken(), torch.ones(3, 64, 80), 32, overlap=8)


class Failing(nn.Module):
    """Raises at one of its calls, and counts them."""

    def __init__(self, at, error):
        super().__init__()
        self.at, self.error, self.calls = at, error, 0

    def forward(self, x):
        self.calls += 1
        if self.calls == self.at:
            raise self.error
        return x


@pytest.mark.parametrize(
    ("at", "error"),
    [
        (3, RuntimeError("broken")),
        (2, ValueError("broken")),
        (1, torch.OutOfMemoryError("CUDA out of memory")),
        (1, RuntimeError("DefaultCPUAllocator: can't allocate memory")),
        (1, SplitError("own.", why="w.", fix="f.", more="patches")),
    ],
)
def test_a_model_is_not_run_again_for_an_error_that_is_not_about_samples(at, error):
    model = Failing(at, error)
    with pytest.raises(type(error)) as caught:
        instep.stitch(model, torch.ones(1, 1, 64, 64), 32, overlap=8)
    assert caught.value is error
    assert model.calls == at
