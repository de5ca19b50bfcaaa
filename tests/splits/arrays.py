"""An array that is no tensor and no numpy array, and knows how much of it was read and written."""

from __future__ import annotations

import numpy as np


class Counting:
    """Takes one slice per axis and nothing else, as arrays on disk may."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.shape = array.shape
        self.dtype = array.dtype
        self.read = 0
        self.largest = 0

    def _seen(self, slices) -> None:
        assert isinstance(slices, tuple)
        assert len(slices) == len(self.shape)
        assert all(isinstance(part, slice) for part in slices)
        self.largest = max(self.largest, self.array[slices].size)

    def __getitem__(self, slices) -> np.ndarray:
        self._seen(slices)
        self.read += self.array[slices].size
        return self.array[slices].copy()

    def __setitem__(self, slices, value) -> None:
        self._seen(slices)
        assert np.ndim(value) == 0 or self.array[slices].shape == value.shape
        self.array[slices] = value
