"""Arrays that need not fit into memory: only the window that is asked for is read.

An array is anything with a shape that is cut by slices: tensors, numpy arrays and memmaps, zarr
arrays. Files are opened where they are read, so that every worker of a DataLoader has its own.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from instep.errors import SplitError

if TYPE_CHECKING:
    from collections.abc import Callable

    from instep.splits.tiles import Slices

OPEN = 64
"""Files that a process keeps open; a thousand images would be too many for most systems."""


def is_array(value: Any) -> bool:
    """Whether a value is cut by slices: it has a shape and can be indexed."""
    return isinstance(getattr(value, "shape", None), tuple) and hasattr(value, "__getitem__")


def is_path(value: Any) -> bool:
    """Whether a value names a file that can be read by windows."""
    return isinstance(value, str | Path) and Path(value).suffix.lower() in _OPENERS


def array_of(value: Any) -> Any:
    """Return what is to be cut: the array itself, or a file's array; None for anything else."""
    if is_path(value):
        return File(Path(value))
    return value if is_array(value) else None


def is_floating(dtype: Any) -> bool:
    """Whether a type, of torch, numpy or named, has fractions."""
    if isinstance(dtype, torch.dtype):
        return dtype.is_floating_point or dtype.is_complex
    name = str(dtype).lstrip("<>=|")
    return "float" in name or name.startswith(("f", "c"))


def window(array: Any, slices: Slices) -> Tensor:
    """Read the part of an array that slices of its last axes leave, as a tensor.

    It may share its memory with the array.
    """
    ahead = (slice(None),) * (len(array.shape) - len(slices))
    return tensor_of(array[(*ahead, *slices)])


def tensor_of(read: Any) -> Tensor:
    """Return what an array gave as a tensor."""
    if isinstance(read, Tensor):
        return read
    import numpy as np  # noqa: PLC0415 -- only where somebody has an array of it

    found = np.asarray(read)
    # A read-only map cannot become a tensor, nor can bytes in another machine's order.
    native = found.dtype.newbyteorder("=")
    if found.dtype != native or not found.flags.writeable or min(found.strides, default=0) < 0:
        found = np.array(found, dtype=native)
    return torch.from_numpy(found)


class File:
    """An array in a file, opened at the first look and again in every process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise SplitError(
                f"there is no file {path}.",
                why="it is read by windows, whenever a patch is asked for.",
                fix="check the path; a relative one starts where the program was started.",
                more="patches",
            )
        self.shape: tuple[int, ...] = tuple(self._array.shape)
        self.dtype: Any = self._array.dtype

    @property
    def _array(self) -> Any:
        return _opened(self.path)

    def __getitem__(self, slices: Slices) -> Any:
        return self._array[slices]


_handles: OrderedDict[tuple[int, Path], Any] = OrderedDict()


def _opened(path: Path) -> Any:
    """Open a file, or take the one this process has open; the least used ones are closed."""
    key = (os.getpid(), path)
    if key not in _handles:
        _handles[key] = _OPENERS[path.suffix.lower()](path)
        while len(_handles) > OPEN:
            _handles.popitem(last=False)
    _handles.move_to_end(key)
    return _handles[key]


def _open_npy(path: Path) -> Any:
    import numpy as np  # noqa: PLC0415 -- only where somebody has a file of it

    return np.load(path, mmap_mode="r")


class GeoTiff:
    """The bands of a raster file as an array of bands, rows and columns."""

    def __init__(self, path: Path) -> None:
        try:
            import rasterio  # noqa: PLC0415 -- optional: only for these files
        except ModuleNotFoundError as error:
            raise SplitError(
                f"{path.name} cannot be read.",
                why="windows of TIFF files are read by rasterio, which is not installed.",
                fix="pip install rasterio, or pass an array instead of the path.",
                more="patches",
            ) from error
        self._file = rasterio.open(path)
        self.shape = (self._file.count, self._file.height, self._file.width)
        self.dtype = self._file.dtypes[0]

    def __getitem__(self, slices: Slices) -> Any:
        bands, rows, columns = (
            range(*part.indices(n)) for part, n in zip(slices, self.shape, strict=True)
        )
        place = ((rows.start, rows.stop), (columns.start, columns.stop))
        return self._file.read([band + 1 for band in bands], window=place)


_OPENERS: dict[str, Callable[[Path], Any]] = {
    ".npy": _open_npy,
    ".tif": GeoTiff,
    ".tiff": GeoTiff,
}
