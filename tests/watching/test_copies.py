"""Patches that were copied are looked up in the image, wherever they are and how many dimensions
they have.
"""

from __future__ import annotations

import pytest
import torch

from instep.trace import Place
from instep.watching.copies import Copies

HERE = Place("train.py", 3)


def seen(image, patches, *, batches=1):
    copies = Copies()
    for _ in range(batches):
        copies.batch("loader", [image])
        for patch in patches:
            copies.given(patch, HERE)
    copies.batch("loader", [image])
    return copies


def cut(image, *starts, size=8):
    """Return copies of squares or cubes that begin at these places."""
    return [image[(..., *(slice(at, at + size) for at in start))].clone() for start in starts]


QUARTERS = [(0, 0), (0, 8), (8, 0), (8, 8)]


def test_quarters_are_found_in_any_order():
    image = torch.randn(2, 3, 16, 16)
    for order in (QUARTERS, QUARTERS[::-1], QUARTERS[1:] + QUARTERS[:1]):
        copies = seen(image, cut(image, *order))
        assert copies.tiled == {"loader"}
        assert copies.is_patch(torch.zeros(1, 3, 8, 8), HERE)
        assert not copies.is_patch(image, HERE)
        assert not copies.is_patch(torch.zeros(1, 3, 8, 8), None)


def test_cubes_of_a_volume():
    image = torch.randn(1, 2, 8, 8, 8)
    starts = [(a, b, c) for a in (0, 4) for b in (0, 4) for c in (0, 4)]
    assert seen(image, cut(image, *starts, size=4)).tiled == {"loader"}
    assert seen(image, cut(image, *starts[1:], size=4)).tiled == set()


def test_single_rows_and_columns():
    image = torch.randn(2, 3, 4, 4)
    assert seen(image, [row.clone() for row in image.split(1, 2)]).tiled == {"loader"}
    assert seen(image, [column.clone() for column in image.split(1, 3)]).tiled == {"loader"}


@pytest.mark.parametrize(
    "starts",
    [
        QUARTERS[:3],  # some are missing
        [(0, 0), (0, 8), (8, 0), (8, 7)],  # a pixel is
        [*QUARTERS, (4, 4)],  # five crops
        [*QUARTERS, (0, 0)],  # one twice
    ],
)
def test_what_is_not_a_whole_image(starts):
    image = torch.randn(2, 3, 16, 16)
    assert seen(image, cut(image, *starts)).tiled == set()


def test_what_is_the_same_everywhere_says_nothing():
    for image in (torch.zeros(2, 3, 16, 16), torch.zeros(2, 3, 256, 256)):
        half = image.shape[-1] // 2
        assert seen(image, [each.clone() for each in image.split(half, -1)]).tiled == set()


def test_other_numbers_and_other_shapes_are_none_of_the_image():
    image = torch.randn(2, 3, 16, 16)
    quarters = cut(image, *QUARTERS)
    for others in (
        [each + 1 for each in quarters],
        [each[:, :2] for each in quarters],
        [each[:1] for each in quarters],
        [each[0] for each in quarters],
        [image, image],
    ):
        assert seen(image, others).tiled == set()


def test_a_few_batches_are_looked_at():
    image = torch.randn(2, 3, 16, 16)
    copies = seen(image, [], batches=20)
    assert not copies.looks


class Far:
    """Stands for rows that are on their way from a device."""

    is_here = False


def test_what_is_on_its_way_is_waited_for_without_waiting(monkeypatch):
    image = torch.randn(2, 3, 16, 16)
    copies = Copies()
    copies.batch("loader", [image])
    for patch in cut(image, *QUARTERS):
        copies.given(patch, HERE)
    rows = next(iter(copies._open.patches.values()))
    there, rows[0] = rows[0], rows[0]._replace(rows=Far())
    copies.batch("loader", [image])
    assert copies.tiled == set()
    rows[0] = there
    copies.batch("loader", [image])
    assert copies.tiled == {"loader"}
