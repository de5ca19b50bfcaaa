"""Random patches: where they lie, what is read, and that they are the same ones again."""

from __future__ import annotations

import copy
import pickle
import random
from collections import Counter
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import instep
from instep.errors import SplitError
from tests.splits.arrays import Counting


class Scripted(random.Random):
    """Gives the numbers that it is told, to try all of them."""

    def __init__(self, *numbers: int, share: float = 0.0) -> None:
        super().__init__(0)
        self.numbers = list(numbers)
        self.share = share
        self.asked: list[int] = []

    def randrange(self, stop):
        self.asked.append(stop)
        return self.numbers.pop(0) if self.numbers else 0

    def random(self):
        return self.share

    def choice(self, options):
        return options[self.randrange(len(options))]


def every_draw(patches, share: float = 0.0, before: tuple[int, ...] = ()):
    """Return how often each position comes up, as an exact probability, over all numbers."""
    found: dict[Any, float] = {}

    def go(numbers, probability):
        script = Scripted(*numbers, share=share)
        place = patches._drawn(script)
        if len(script.asked) > len(numbers):
            stop = script.asked[len(numbers)]
            for number in range(stop):
                go((*numbers, number), probability / stop)
        else:
            key = (place.source, place.start)
            found[key] = found.get(key, 0) + probability

    go(before, 1.0)
    return found


def coordinates(*sizes):
    """An image whose pixels say where they are."""
    return torch.stack(torch.meshgrid(*(torch.arange(n) for n in sizes), indexing="ij"))


def test_every_position_of_every_image_is_equally_likely():
    images = [coordinates(7, 9), coordinates(5, 5), coordinates(5, 8)]
    patches = instep.RandomPatches(images, patch=5, length=10)
    found = every_draw(patches)
    expected = {
        (source, (top, left))
        for source, image in enumerate(images)
        for top in range(image.shape[1] - 4)
        for left in range(image.shape[2] - 4)
    }
    assert set(found) == expected
    assert found == pytest.approx(dict.fromkeys(expected, 1 / len(expected)))


def test_foreground_patches_lie_around_labelled_pixels_each_as_often():
    labels = torch.zeros(2, 12, 12, dtype=torch.uint8)
    pixels = [(0, 6, 6), (0, 6, 7), (1, 5, 6), (1, 7, 7)]
    for pixel in pixels:
        labels[pixel] = 3
    labels[1, 7, 7] = 4
    sources = [(coordinates(12, 12), labels[k]) for k in range(2)]
    patches = instep.RandomPatches(sources, patch=4, length=10, foreground=0.5)
    expected = {(k, (row - 2, column - 2)): 0.25 for k, row, column in pixels}
    assert every_draw(patches, share=0.49) == pytest.approx(expected)
    assert len(every_draw(patches, share=0.5)) == 2 * 9 * 9
    balanced = instep.RandomPatches(sources, 4, length=10, foreground=1, balanced=True)
    each = dict(zip(expected, (1 / 6, 1 / 6, 1 / 6, 1 / 2), strict=True))
    assert every_draw(balanced, share=0.0) == pytest.approx(each)
    without = instep.RandomPatches(sources, 4, length=10, foreground=1, background=(0, 3))
    assert every_draw(without) == pytest.approx({(1, (5, 5)): 1.0})


@pytest.mark.parametrize(("scale", "pixel", "start"), [(2, (17, 4), (6, 0)), (0.5, (4, 3), (6, 4))])
def test_labels_at_another_scale(scale, pixel, start):
    labels = torch.zeros(int(20 * scale), int(20 * scale), dtype=torch.int64)
    labels[pixel] = 1
    patches = instep.RandomPatches([(coordinates(20, 20), labels)], 4, foreground=1)
    assert every_draw(patches) == pytest.approx({(0, start): 1.0})
    assert patches[0][1].sum() == 1


def test_labels_far_apart_in_a_large_map_are_as_likely():
    """Blocks of a map are drawn by what they hold."""
    labels = torch.zeros(600, 300, dtype=torch.int64)
    pixels = [(10, 10), (10, 11), (10, 12), (590, 290)]
    for pixel in pixels:
        labels[pixel] = 1
    patches = instep.RandomPatches([(torch.zeros(600, 300), labels)], 2, foreground=1)
    found = every_draw(patches)
    assert found == pytest.approx({(0, (r - 1, c - 1)): 0.25 for r, c in pixels})


def test_sources_are_drawn_by_their_weights():
    labels = torch.zeros(3, 8, 8, dtype=torch.int64)
    labels[1, 4, 4] = 1
    sources = [(torch.zeros(8, 8), labels[k]) for k in range(3)]
    patches = instep.RandomPatches(sources, 8, weight=[1, 3, 0], foreground=0.5)
    for share, source in ((0.0, 0), (0.24, 0), (0.26, 1), (0.99, 1)):
        assert patches._drawn(Scripted(share=share)).source == source
    # A source without labels is drawn no less often for that.
    assert patches._drawn(Scripted(share=0.1)).source == 0


def test_pixels_are_drawn_by_a_map_of_weights():
    weights = torch.zeros(2, 9, 9)
    weights[0, 4, 4], weights[1, 2, 3], weights[1, 8, 8] = 1.0, 2.0, 1.0
    sources = [{"image": coordinates(9, 9), "w": weights[k]} for k in range(2)]
    patches = instep.RandomPatches(sources, 3, weight="w")
    steps = 1000
    drawn = Counter(patches._drawn(TwoShares(k / steps)) for k in range(steps))
    found = {(place.source, place.start): n / steps for place, n in drawn.items()}
    expected = {(0, (3, 3)): 0.25, (1, (1, 2)): 0.5, (1, (6, 6)): 0.25}
    assert found == pytest.approx(expected, abs=2 / steps)


class TwoShares(Scripted):
    """A block is drawn by a share of all, and a pixel in it by the rest of that share."""

    def __init__(self, share):
        super().__init__(share=share)
        self.first = True

    def random(self):
        if self.first:
            self.first = False
            return self.share
        inside = (self.share - 0.25) / 0.75
        return inside if inside >= 0 else self.share * 4


@settings(max_examples=30)
@given(st.data())
def test_everything_is_cut_at_the_same_place_at_its_own_scale(data):
    axes = data.draw(st.integers(1, 3))
    patch = tuple(2 * data.draw(st.integers(1, 4)) for _ in range(axes))
    sizes = [size + 2 * data.draw(st.integers(0, 5)) for size in patch]
    image = coordinates(*sizes)
    half = image[(slice(None), *[slice(None, None, 2)] * axes)]
    double = image
    for axis in range(axes):
        double = double.repeat_interleave(2, axis + 1)
    sources = [{"image": image, "half": half, "double": double.numpy(), "name": "x"}]
    patches = instep.RandomPatches(sources, patch, length=20, seed=data.draw(st.integers()))
    for index in range(20):
        found, (start,) = patches[index], {patches.position(index).start}
        assert found["name"] == "x"
        assert found["image"][(slice(None), *[0] * axes)].tolist() == list(start)
        assert tuple(found["image"].shape[1:]) == patch
        every = (slice(None), *[slice(None, None, 2)] * axes)
        assert torch.equal(found["half"], found["image"][every])
        assert torch.equal(found["double"][every], found["image"])


def test_only_the_patch_is_read():
    image = Counting(np.zeros((3, 900, 700), dtype="float32"))
    labels = Counting(np.zeros((900, 700), dtype="uint8"))
    labels.array[700, 600] = 1
    patches = instep.RandomPatches([(image, labels)], 32, length=50)
    assert image.read == labels.read == 0
    for index in range(50):
        _ = patches[index]
    assert image.read == 50 * 3 * 32 * 32
    assert labels.read == 50 * 32 * 32
    labels.read = 0
    patches = instep.RandomPatches([(image, labels)], 32, length=50, foreground=1)
    assert labels.read == 900 * 700
    assert labels.largest <= 65536
    labels.read = 0
    assert patches[0][1].sum() == 1
    assert labels.read <= 65536 + 32 * 32


class Pair(NamedTuple):
    image: Any
    target: Any


@dataclass(frozen=True)
class Case:
    image: Any
    camera: Any
    place: str


def test_samples_keep_their_structure(tmp_path):
    image = coordinates(20, 20)
    np.save(tmp_path / "image.npy", image.numpy())
    pair = instep.RandomPatches([Pair(tmp_path / "image.npy", image)], 8)[0]
    assert isinstance(pair, Pair)
    assert torch.equal(*pair)
    case = instep.RandomPatches([Case(image, np.ones(3), "here")], 8)[0]
    assert isinstance(case, Case)
    assert case.image.shape == (2, 8, 8)
    assert case.camera.shape == (3,)
    assert case.place == "here"
    assert instep.RandomPatches([image], 8)[0].shape == (2, 8, 8)
    whole = instep.RandomPatches([[image, np.ones((4, 4))]], 8, uncut=1)[0]
    assert isinstance(whole, list)
    assert whole[1].shape == (4, 4)


def test_what_is_done_to_a_patch_does_not_reach_the_image(tmp_path):
    image = torch.zeros(1, 20, 20)
    array = np.zeros((1, 20, 20))
    for part in instep.RandomPatches([(image, array)], 20)[0]:
        part.fill_(1)
    assert not image.any()
    assert not array.any()


def noisy(image):
    noise = torch.rand(2, 1, 1) + random.random() + float(np.random.rand())
    return image + noise


def read_all(patches, workers, **options):
    loader = DataLoader(patches, batch_size=3, num_workers=workers, **options)
    return torch.cat(list(loader))


def test_patches_are_the_same_whatever_reads_them():
    images = [coordinates(40, 30), coordinates(30, 50)]
    make = lambda: instep.RandomPatches(images, 16, length=20, seed=5, transform=noisy)
    before = random.getstate(), torch.get_rng_state(), np.random.get_state()[1].copy()
    expected = torch.stack(list(make()))
    assert random.getstate() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])
    assert np.array_equal(np.random.get_state()[1], before[2])
    assert len({tuple(patch.flatten().tolist()) for patch in expected}) == 20
    for workers in (0, 1, 2):
        assert torch.equal(read_all(make(), workers), expected)
    other = pickle.loads(pickle.dumps(make()))
    # Resumed in the middle, in any order, by another process: the same.
    assert all(torch.equal(other[k], expected[k]) for k in (13, 19, 2, -1))
    assert not torch.equal(
        torch.stack(list(instep.RandomPatches(images, 16, length=20, seed=6))), expected
    )


def test_epochs_differ_and_come_back_also_in_workers_that_stay():
    patches = instep.RandomPatches([coordinates(40, 30)], 16, length=20)
    loader = DataLoader(patches, batch_size=4, num_workers=1, persistent_workers=True)
    seen = []
    for epoch in (0, 1, 0):
        patches.set_epoch(epoch)
        seen.append(torch.cat(list(loader)))
    assert not torch.equal(seen[0], seen[1])
    assert torch.equal(seen[0], seen[2])
    with pytest.raises(IndexError):
        patches[20]
    assert copy.deepcopy(patches).position(3) == patches.position(3)


def test_smaller_images_are_refused_or_continued():
    image = coordinates(5, 20)
    double = image.repeat_interleave(2, 1).repeat_interleave(2, 2)
    with pytest.raises(SplitError, match="source 1 has 5 x 20 pixels, the patch 8 x 8"):
        instep.RandomPatches([coordinates(8, 8), image], 8)
    for pad in ("reflect", "edge"):
        patches = instep.RandomPatches([(image, double)], 8, length=5, pad=pad)
        for small, large in patches:
            assert small.shape == (2, 8, 8)
            assert large.shape == (2, 16, 16)
            expected = np.pad(np.arange(5), (1, 2), mode=pad)
            assert small[0, :, 0].tolist() == expected.tolist()
            assert torch.equal(large[:, 2:12:2, ::2], small[:, 1:6])


def test_the_default_length_covers_the_images():
    images = [torch.zeros(64, 64), torch.zeros(65, 32)]
    assert len(instep.RandomPatches(images, 32)) == 4 + 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sources": []}, "no sources"),
        ({"sources": ["name"]}, "no array"),
        ({"sources": [torch.zeros(5)]}, "no array"),
        ({"patch": 0}, "patch is 0"),
        ({"patch": (8, 8, 8, 8)}, "no array"),
        ({"length": 0}, "length is 0"),
        ({"foreground": 2}, "foreground is 2"),
        ({"foreground": 0.5}, "has no labels"),
        ({"foreground": 0.5, "label": 7}, "label is 7"),
        ({"foreground": 0.5, "label": 0}, "has the shape"),
        ({"foreground": 0.5, "label": 1}, "no pixel of any source is labelled"),
        ({"weight": "w"}, "weight is 'w'"),
        ({"weight": 1}, "every weight of every source is zero"),
        ({"weight": [1, 2]}, "2 numbers for 1 sources"),
        ({"weight": [-1]}, "1 numbers for 1 sources"),
        ({"weight": [0]}, "not all of them 0"),
        ({"pad": "zeros"}, "pad is 'zeros'"),
        ({"sources": [(torch.zeros(20, 20), torch.zeros(19, 20))]}, "cannot be cut with"),
        ({"sources": [(torch.zeros(20, 20), torch.zeros(5, 5))], "patch": 6}, "cannot be cut"),
        ({"sources": [(torch.zeros(9, 9), -torch.ones(9, 9))], "weight": 1}, "not all numbers"),
    ],
)
def test_options_that_mean_nothing_are_refused(options, message):
    sources = [(torch.zeros(3, 20, 20), torch.zeros(20, 20))]
    options = {"sources": sources, "patch": 8} | options
    with pytest.raises(SplitError, match=message):
        instep.RandomPatches(**options)


def test_labels_that_changed_since_are_noticed():
    labels = torch.zeros(20, 20, dtype=torch.int64)
    labels[4, 4] = 1
    patches = instep.RandomPatches([(torch.zeros(20, 20), labels)], 8, foreground=1)
    labels.zero_()
    with pytest.raises(SplitError, match="have changed"):
        _ = patches[0]
