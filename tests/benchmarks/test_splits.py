import re

import pytest
import torch
from torch import nn

import instep
from benchmarks.splits import __main__ as splits
from benchmarks.splits import gradients, memory, peers, picture, timing
from benchmarks.splits.networks import UNet, super_resolution


def case(name):
    (found,) = gradients.cases([name])
    return found


def test_only_patches_with_halo_have_the_whole_images_gradient():
    found = gradients.errors(case("PixelShuffle x2"))
    assert found["Patches"] < gradients.EXACTLY
    assert found["halo=0"] > 1e-3
    assert found["naive"] > 1e-3


def test_what_cannot_be_cut_without_halo_is_said():
    found = gradients.errors(case("depthwise separable"))
    assert found["halo=0"] == "refused"
    assert found["Patches"] < gradients.EXACTLY


def test_a_local_network_has_no_error_on_full_patches():
    """Else the naive loop would be blamed for something else than borders and rests."""
    local = gradients.Case("local", (1, 3, 32, 48), 16, lambda: nn.Conv2d(3, 2, 1))
    found = gradients.errors(local)
    assert max(found["naive"], found["halo=0"], found["Patches"]) < 1e-12


def test_full_patches_leave_the_rest_out():
    image, target = torch.rand(2, 3, 20, 35), torch.rand(2, 3, 40, 70)
    cut = gradients.full_patches((image, target), 16)
    assert [tuple(x.shape) for x, _ in cut] == [(2, 3, 16, 16)] * 2
    assert torch.equal(cut[1][1], target[..., :32, 32:64])


def test_drift_is_relative_to_the_way_travelled():
    naive, exact = gradients.drift(case("PixelShuffle x2"), 2)
    assert exact < gradients.EXACTLY
    assert 1e-2 < naive < 10


def test_cost_counts_what_tiles_read():
    model = nn.Conv2d(3, 3, 3, padding=1)
    plan = instep.Patches(8).plan(torch.rand(1, 3, 16, 16), [model])
    assert timing.pixels(plan, 16) == pytest.approx((9 + 9) ** 2 / 16**2)
    found = timing.cost("plain", rounds=2, side=48, patch=16)
    assert (found.before, found.after) == (4, 4)
    assert found.theory == pytest.approx((24 / 16) ** 2)
    assert 1 < found.pixels < found.theory
    assert found.time.middle > 0
    assert found.probe > 0


@pytest.mark.parametrize("make", [lambda: super_resolution(2), UNet])
def test_a_checkpointed_model_is_the_same_model(make):
    torch.manual_seed(0)
    model = make()
    image = torch.rand(1, 3, 32, 32)
    parameters = list(model.parameters())

    def kept(forward):
        sizes = []
        hooks = torch.autograd.graph.saved_tensors_hooks
        with hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
            made = forward(image)
        return torch.autograd.grad(made.square().sum(), parameters), sum(sizes)

    wanted, plain = kept(model)
    found, fewer = kept(memory.checkpointed(model))
    assert fewer < plain
    for one, other in zip(found, wanted, strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-5)


def test_memory_is_measured_in_a_process_of_its_own():
    whole = memory.measured("super-resolution", "whole", 256, 64)
    patches = memory.measured("super-resolution", "patches", 256, 64)
    # Three layers of 16 channels are kept for the backward.
    assert whole > 3 * 16 * 256**2 * 4 / 2**20
    assert patches < whole / 2


def test_the_picture_has_a_line_for_every_way(tmp_path):
    found = {(network, way): [1.0, 2.0] for network in "ab" for way in memory.WAYS}
    picture.draw(found, [64, 128], 32, tmp_path / "memory.png")
    assert (tmp_path / "memory.png").stat().st_size > 5000


def test_tables_in_quick_mode(capsys):
    assert splits.main(["--quick", "--only", "gradients", "drift", "cost", "batches"]) == 0
    out = capsys.readouterr().out
    assert len(re.findall(r"^\| plain \|", out, re.MULTILINE)) == 3


def test_an_inexact_split_of_ours_fails(monkeypatch, capsys):
    monkeypatch.setattr(gradients, "EXACTLY", 0.0)
    assert splits.main(["--quick", "--only", "gradients"]) == 1


def test_a_missing_peer_is_an_error_if_required(monkeypatch, capsys):
    monkeypatch.setattr(peers, "installed", lambda package: package != "torchio")
    assert splits.main(["--require-peers"]) == 2
    assert "torchio" in capsys.readouterr().err
