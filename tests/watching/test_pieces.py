"""Patches of a batch are recognised; whatever else a model is given is not one."""

from __future__ import annotations

import pytest
import torch

from instep.trace import Place
from instep.watching.pieces import Pieces

HERE = Place("train.py", 3)


def loaders(pieces, *given):
    return [pieces.loader_of(each, HERE) for each in given]


def test_patches_are_known_from_the_second_batch_on():
    pieces = Pieces()
    pieces.batch("loader")
    images = torch.zeros(2, 3, 8), torch.zeros(2, 3, 8)
    assert loaders(pieces, *images[0].split(4, -1)) == [None, None]
    pieces.batch("loader")
    assert loaders(pieces, *images[1].split(4, -1)) == ["loader", "loader"]


@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("size", [2, 4, 16])
def test_however_many_and_in_whatever_layout(form, size):
    pieces = Pieces()
    for known in (False, True):
        pieces.batch("loader")
        image = torch.zeros(2, 3, 32, 32).contiguous(memory_format=form)
        tiles = [tile for row in image.split(size, 2) for tile in row.split(size, 3)]
        assert set(loaders(pieces, *tiles)) == ({"loader"} if known else {None})


@pytest.mark.parametrize(
    "crops",
    [
        [(0, 0), (8, 16), (24, 24), (3, 20)],  # apart from each other
        [(0, 0), (0, 16), (16, 0), (15, 15)],  # as large as the image, and one upon others
        [(0, 0), (0, 16)],
    ],
)
def test_crops_are_no_pieces(crops):
    pieces = Pieces()
    for _ in range(3):
        pieces.batch("loader")
        image = torch.zeros(2, 1, 32, 32)
        size = 8 if len({*crops}) == 4 and (8, 16) in crops else 16
        given = [image[..., i : i + size, j : j + size] for i, j in crops]
        assert loaders(pieces, *given) == [None] * len(crops)


def test_smaller_batches_are_no_patches():
    pieces = Pieces()
    pieces.batch("loader")
    assert loaders(pieces, *torch.zeros(8, 3).split(2)) == [None] * 4


def test_tokens_but_the_last_are_no_patch():
    pieces = Pieces()
    for _ in range(3):
        pieces.batch("loader")
        assert loaders(pieces, torch.zeros(4, 9)[:, :-1]) == [None]


def test_without_a_loader_there_is_no_batch():
    assert loaders(Pieces(), *torch.zeros(2, 8).split(4, -1)) == [None, None]


def patches(images, size=4):
    return images.unfold(2, size, size).unfold(3, size, size).contiguous().flatten(2, 3)


def test_patches_of_a_copy_are_those_of_the_image():
    pieces = Pieces()
    images, labels = torch.zeros(2, 3, 8, 8), torch.zeros(2)
    for batch in (images, [images, labels], (images, labels), {"x": images, "y": labels}):
        pieces.batch("loader", batch)
        copy = patches(images)
        told = loaders(pieces, *(copy[:, :, at] for at in range(4)))
    assert told == ["loader"] * 4
    assert pieces.tiled == {"loader"}


def test_some_patches_are_not_the_image():
    pieces = Pieces()
    images = torch.zeros(2, 3, 8, 8)
    pieces.batch("loader", images)
    copy = patches(images)
    loaders(pieces, *(copy[:, :, at] for at in range(3)))
    assert pieces.tiled == set()


def test_a_copy_with_more_or_other_numbers_is_none_of_the_image():
    pieces = Pieces()
    pieces.batch("loader", torch.zeros(2, 3, 8, 8))
    for other in (torch.zeros(2, 3, 9, 4, 4), torch.zeros(2, 1, 12, 4, 4)):
        assert loaders(pieces, *(other[:, :, at] for at in range(3))) == [None] * 3


def test_frames_of_a_film_are_no_patches():
    pieces = Pieces()
    film = torch.zeros(2, 3, 5, 8, 8)
    pieces.batch("loader", [film, torch.zeros(2, 3, 20, 4, 4)])
    assert loaders(pieces, *(film[:, :, at] for at in range(5))) == [None] * 5
