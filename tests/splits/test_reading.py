"""Windows of arrays and files: the right pixels, and no others."""

from __future__ import annotations

import pickle
import sys

import numpy as np
import pytest
import torch

from instep.errors import SplitError
from instep.splits import reading
from instep.splits.reading import array_of, is_floating, window
from tests.splits.arrays import Counting

PLACE = (slice(3, 7), slice(2, 9))


@pytest.fixture
def values():
    return np.random.default_rng(0).integers(0, 200, (2, 12, 15)).astype("uint8")


def test_a_window_of_anything_is_a_tensor(values, tmp_path):
    np.save(tmp_path / "values.npy", values)
    mapped = np.load(tmp_path / "values.npy", mmap_mode="r")
    counting = Counting(values)
    expected = torch.from_numpy(values)[:, 3:7, 2:9]
    for array in (values, mapped, counting, torch.from_numpy(values), tmp_path / "values.npy"):
        found = window(array_of(array), PLACE)
        assert found.dtype is torch.uint8
        assert torch.equal(found, expected)
    assert counting.read == expected.numel()


def test_bytes_in_another_order_and_turned_arrays(values):
    for array in (values.astype(">i2"), values.astype("<f8"), values[::-1, :, ::-1]):
        assert window(array, PLACE).tolist() == array[:, 3:7, 2:9].tolist()


def test_what_is_no_array():
    for value in ("a name", 3, None, [1, 2], "notes.txt"):
        assert array_of(value) is None


def test_files_are_opened_again_where_they_are_read(values, tmp_path, monkeypatch):
    np.save(tmp_path / "values.npy", values)
    file = array_of(str(tmp_path / "values.npy"))
    assert file.shape == values.shape
    assert file.dtype == values.dtype
    assert len(pickle.dumps(file)) < 1000
    opened = []
    monkeypatch.setitem(reading._OPENERS, ".npy", lambda path: opened.append(path) or values)
    window(file, PLACE)
    assert not opened
    monkeypatch.setattr(reading.os, "getpid", lambda: -1)
    window(file, PLACE)
    window(file, PLACE)
    assert len(opened) == 1


def test_not_too_many_files_are_open(values, tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "OPEN", 3)
    monkeypatch.setattr(reading, "_handles", type(reading._handles)())
    files = []
    for number in range(6):
        np.save(tmp_path / f"{number}.npy", values + number)
        files.append(array_of(tmp_path / f"{number}.npy"))
    for _ in range(2):
        for number, file in enumerate(files):
            assert window(file, PLACE).tolist() == (values + number)[:, 3:7, 2:9].tolist()
            assert len(reading._handles) <= 3


def test_a_tiff_without_rasterio_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "scene.TIF").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "rasterio", None)
    with pytest.raises(SplitError, match="pip install rasterio"):
        array_of(tmp_path / "scene.TIF")
    with pytest.raises(SplitError, match="there is no file"):
        array_of("missing.tif")


class Raster:
    """What is used of rasterio: a stand-in for where it is not installed."""

    def __init__(self, values):
        self.values = values
        self.count, self.height, self.width = values.shape
        self.dtypes = [str(values.dtype)] * self.count

    def read(self, bands, window):
        (top, bottom), (left, right) = window
        return self.values[[band - 1 for band in bands], top:bottom, left:right]


def test_windows_of_a_raster(values, tmp_path, monkeypatch):
    path = tmp_path / "scene.tif"
    path.write_bytes(b"")
    stand_in = type(sys)("rasterio")
    stand_in.open = lambda path: Raster(values)
    monkeypatch.setitem(sys.modules, "rasterio", stand_in)
    file = array_of(path)
    assert file.shape == values.shape
    assert torch.equal(window(file, PLACE), torch.from_numpy(values)[:, 3:7, 2:9])
    assert torch.equal(window(file, (slice(None), slice(None))), torch.from_numpy(values))


def test_windows_of_a_real_raster(values, tmp_path):
    rasterio = pytest.importorskip("rasterio")
    path = tmp_path / "scene.tif"
    shape = dict(zip(("count", "height", "width"), values.shape, strict=True))
    place = rasterio.Affine.translation(5, 9)
    with rasterio.open(
        path, "w", driver="GTiff", dtype="uint8", crs="EPSG:3857", transform=place, **shape
    ) as file:
        file.write(values)
    assert torch.equal(window(array_of(path), PLACE), torch.from_numpy(values)[:, 3:7, 2:9])


def test_a_real_zarr_array(values):
    zarr = pytest.importorskip("zarr")
    array = zarr.create_array(store={}, shape=values.shape, chunks=(1, 5, 5), dtype="uint8")
    array[:] = values
    assert torch.equal(window(array_of(array), PLACE), torch.from_numpy(values)[:, 3:7, 2:9])


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (torch.float16, True),
        (torch.int64, False),
        (torch.bool, False),
        (np.dtype(">f4"), True),
        (np.dtype("bool"), False),
        (np.dtype("uint16"), False),
        ("float32", True),
        ("bfloat16", True),
        ("<i2", False),
        ("complex64", True),
    ],
)
def test_types_with_fractions(dtype, expected):
    assert is_floating(dtype) is expected
