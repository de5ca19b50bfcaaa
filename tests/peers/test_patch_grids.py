"""How the peers of `make bench-splits` cut, told from what they hand out."""

import pytest
import torch

from benchmarks.splits import peers

pytestmark = pytest.mark.peers


@pytest.mark.parametrize("cut", [peers.monai, peers.torchio])
def test_every_pixel_is_handed_out_and_targets_fit(cut):
    image = torch.arange(2.0 * 20 * 35).view(2, 1, 20, 35)
    target = image.repeat_interleave(2, -1).repeat_interleave(2, -2)
    patches = list(cut(image, target, 16))
    assert len(patches) == 2 * 2 * 3
    assert {v for x, _ in patches for v in x.flatten().tolist()} == set(image.flatten().tolist())
    for x, y in patches:
        assert torch.equal(x, y[..., ::2, ::2])


def test_they_cut_volumes():
    volume = torch.rand(1, 1, 8, 12, 9)
    for cut in (peers.monai, peers.torchio):
        assert {tuple(x.shape) for x, _ in cut(volume, volume, 4)} == {(1, 1, 4, 4, 4)}
