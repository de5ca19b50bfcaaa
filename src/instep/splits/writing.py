"""Where outputs are put together: a tensor, an array that is given, or a file that is made."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from instep.errors import SplitError
from instep.splits.reading import File, is_array, is_floating, tensor_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from instep.splits.tiles import Slices


class Canvas:
    """One output, written tile by tile; whatever it is, only a tile of it is in memory.

    array: what was given as `out`, or None to make a tensor, or the path of a file to make.
    has_samples: whether the first axis is that of the samples.
    """

    def __init__(
        self,
        array: Any,
        shape: Sequence[int],
        dtype: torch.dtype,
        device: torch.device,
        *,
        has_samples: bool,
    ) -> None:
        self.shape = tuple(shape)
        self.dtype = dtype
        self._has_samples = has_samples
        self.is_zero = array is None or isinstance(array, str | Path)
        """Whether there is nothing to clear before parts are added."""
        if array is None:
            array = torch.zeros(self.shape, dtype=dtype, device=device)
        elif isinstance(array, str | Path):
            array = _file(Path(array), self.shape, dtype)
        self.array = array
        self._require_fitting()

    def put(self, sample: int, slices: Slices, part: Tensor) -> None:
        """Write a part of one sample; a narrower or wider floating type is converted."""
        place = self._place(sample, slices)
        part = part[None] if self._has_samples else part
        if isinstance(self.array, Tensor):
            self.array[place].copy_(part)
        else:
            self.array[place] = _plain(part)

    def add(self, sample: int, slices: Slices, part: Tensor) -> None:
        """Add a part to what is there."""
        place = self._place(sample, slices)
        part = part[None] if self._has_samples else part
        if isinstance(self.array, Tensor):
            self.array[place].add_(part.to(self.array.device))
        else:
            self.array[place] = _plain(tensor_of(self.array[place]) + part.cpu())

    def clear(self, sample: int, slices: Slices) -> None:
        """Write zeros, for parts to be added to."""
        self.array[self._place(sample, slices)] = 0

    def _place(self, sample: int, slices: Slices) -> Slices:
        """Return slices of all axes: not every array understands numbers and dots."""
        first = (slice(sample, sample + 1),) if self._has_samples else ()
        between = (slice(None),) * (len(self.shape) - len(first) - len(slices))
        return (*first, *between, *slices)

    def close(self) -> None:
        """Write what a file still holds in memory."""
        flush = getattr(self.array, "flush", None)
        if callable(flush):
            flush()

    def _require_fitting(self) -> None:
        if not (is_array(self.array) and hasattr(self.array, "__setitem__")):
            raise SplitError(
                f"out is a {type(self.array).__name__}.",
                why="outputs are written into it by slices, tile by tile.",
                fix="pass a tensor, an array (numpy, a memmap, zarr) or the path of a .npy file.",
                more="patches",
            )
        if tuple(self.array.shape) != self.shape:
            raise SplitError(
                f"out has the shape {tuple(self.array.shape)}, the output {self.shape}.",
                why="it holds the output of the whole image.",
                fix=f"make it of shape {self.shape}, or pass a path and it is made.",
                more="patches",
            )
        if self.dtype.is_floating_point and not is_floating(self.array.dtype):
            raise SplitError(
                f"out is of type {self.array.dtype}, the output of {self.dtype}.",
                why="fractions would be cut off without a word.",
                fix="make it of a floating type, or return labels from the model.",
                more="patches",
            )


def _plain(part: Tensor) -> Any:
    """Return a tensor as a numpy array; bfloat16, which numpy does not know, as float32."""
    part = part.detach().cpu()
    return (part.float() if part.dtype is torch.bfloat16 else part).numpy()


def _file(path: Path, shape: tuple[int, ...], dtype: torch.dtype) -> Any:
    if path.suffix != ".npy":
        raise SplitError(
            f"out is {str(path)!r}.",
            why="only .npy files are made here.",
            fix="name it .npy, or open the file yourself and pass its array.",
            more="patches",
        )
    import numpy as np  # noqa: PLC0415 -- only where a file of it is asked for

    wide = torch.float32 if dtype is torch.bfloat16 else dtype
    kind = torch.empty(0, dtype=wide).numpy().dtype
    return np.lib.format.open_memmap(path, mode="w+", dtype=kind, shape=shape)


def outs_of(result: Any, out: Any) -> list[Any]:
    """Return what was given as `out` for each tensor of a result, which has the same structure."""
    if isinstance(result, Tensor):
        return [out]
    if out is not None and not _is_alike(result, out):
        raise SplitError(
            f"out is a {type(out).__name__}, the model returns a {type(result).__name__}.",
            why="each of several outputs is written into an array of its own.",
            fix="give out the structure of the model's output, with an array or path for each.",
            more="patches",
        )
    if isinstance(result, Mapping):
        pairs = [(child, out[key] if out else None) for key, child in result.items()]
    elif isinstance(result, list | tuple):
        pairs = list(zip(result, out or [None] * len(result), strict=True))
    elif dataclasses.is_dataclass(result) and not isinstance(result, type):
        names = [field.name for field in dataclasses.fields(result)]
        pairs = [(getattr(result, name), getattr(out, name, None)) for name in names]
    else:
        return []
    return [found for child, given in pairs for found in outs_of(child, given)]


def _is_alike(result: Any, out: Any) -> bool:
    if isinstance(result, Mapping):
        return isinstance(out, Mapping) and set(result) <= set(out)
    if isinstance(result, list | tuple):
        return isinstance(out, list | tuple) and len(out) == len(result)
    return isinstance(out, type(result))


def require_apart(image: Any, out: Any) -> None:
    """Refuse to write over the image: the next tile would read what this one wrote."""
    held = _memory(image)
    for given in _leaves(out):
        if given is image or (held is not None and _memory(given) == held):
            raise SplitError(
                "out is where the image is.",
                why="tiles read beyond what they write, and would read outputs of other tiles.",
                fix="write to another array or file.",
                more="patches",
            )


def _leaves(out: Any) -> list[Any]:
    if isinstance(out, Mapping):
        return [leaf for child in out.values() for leaf in _leaves(child)]
    if isinstance(out, list | tuple):
        return [leaf for child in out for leaf in _leaves(child)]
    if dataclasses.is_dataclass(out) and not isinstance(out, type):
        children = [getattr(out, field.name) for field in dataclasses.fields(out)]
        return [leaf for child in children for leaf in _leaves(child)]
    return [out]


def _memory(array: Any) -> Any:
    """Return what tells where an array lies: its file, or the start of what it is a view of."""
    if isinstance(array, str | Path | File):
        path = array.path if isinstance(array, File) else Path(array)
        return path.resolve()
    if getattr(array, "filename", None) is not None:
        return Path(array.filename).resolve()
    while not isinstance(array, Tensor) and is_array(getattr(array, "base", None)):
        array = array.base
    if isinstance(array, Tensor):
        return array.untyped_storage().data_ptr() or None
    place = getattr(array, "__array_interface__", None)
    return place["data"][0] if place else None
