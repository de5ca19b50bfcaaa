"""The images of a batch: which tensors the model reads, which are targets, which are neither."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from instep.errors import SplitError
from instep.splits.tree import tensors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    Keys = str | int | Sequence[str | int] | None


@dataclass(frozen=True, slots=True)
class Images:
    """The tensors of a batch by their role; image axes are the last ones, samples the first."""

    batch: Any
    dims: int
    samples: int
    sizes: tuple[int, ...]
    """Of the first input."""
    inputs: tuple[tuple[int, Tensor], ...]
    """With their numbers in the order of the batch."""
    targets: tuple[tuple[int, Tensor], ...]

    @property
    def read(self) -> list[Tensor]:
        """What the model reads."""
        return [tensor for _, tensor in self.inputs]

    @classmethod
    def of(cls, batch: Any, *, inputs: Keys, uncut: Keys) -> Images:
        """Find the images of a batch."""
        leaves = list(_numbered(batch))
        chosen, skipped = _keys(inputs), _keys(uncut)
        _require_known(batch, chosen, "inputs")
        _require_known(batch, skipped, "uncut")
        named = [(n, t) for n, key, t in leaves if key in chosen and t.dim() > 2]
        if inputs is None:
            named = [(n, t) for n, key, t in leaves if t.dim() > 2 and key not in skipped][:1]
        if not named:
            raise SplitError(
                "the batch has no image to cut.",
                why="an image tensor has samples, channels and one axis or more: N, C, H, W.",
                fix="add the missing dimension, or name the inputs with Patches(inputs=...).",
                more="patches",
            )
        dims = named[0][1].dim() - 2
        used = {number for number, _ in named}
        targets = [
            (number, tensor)
            for number, key, tensor in leaves
            if number not in used and key not in skipped and tensor.dim() > dims
        ]
        sizes = tuple(named[0][1].shape[-dims:])
        return cls(batch, dims, len(named[0][1]), sizes, tuple(named), tuple(targets))


def _numbered(batch: Any) -> list[tuple[int, str | int | None, Tensor]]:
    """Return every tensor with its number and the key of the batch it is under."""
    if isinstance(batch, Mapping):
        parts: list[tuple[Any, Any]] = list(batch.items())
    elif dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        parts = [(f.name, getattr(batch, f.name)) for f in dataclasses.fields(batch)]
    elif isinstance(batch, list | tuple):
        names = getattr(batch, "_fields", range(len(batch)))
        parts = list(zip(names, batch, strict=True))
    else:
        parts = [(None, batch)]
    pairs = [(key, tensor) for key, part in parts for tensor in tensors(part)]
    return [(number, key, tensor) for number, (key, tensor) in enumerate(pairs)]


def _keys(keys: Keys) -> tuple[Any, ...]:
    if keys is None:
        return ()
    return (keys,) if isinstance(keys, str | int) else tuple(keys)


def _require_known(batch: Any, keys: tuple[Any, ...], option: str) -> None:
    known = [key for _, key, _ in _numbered(batch)]
    for key in keys:
        if key not in known:
            raise SplitError(
                f"{option} names {key!r}, which is not in the batch.",
                why=f"its tensors are under {list(dict.fromkeys(known))}.",
                fix="use the names of the batch's entries, or their positions in a tuple.",
                more="patches",
            )
