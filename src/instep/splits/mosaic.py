"""A mosaic: the plan of a batch of images that is cut into tiles."""

from __future__ import annotations

import contextlib
import itertools
import math
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from instep.errors import SplitError
from instep.splits.heads import channels_seen
from instep.splits.plan import Piece
from instep.splits.tiles import take
from instep.splits.tree import renewed, tensors
from instep.splits.trial import differs, refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from torch import nn

    from instep.splits.certificate import Certificate
    from instep.splits.images import Images
    from instep.splits.tiles import Tile


IGNORED = -100
"""What cross_entropy ignores unless told otherwise."""
VOID = 255
"""What label images say where there is no label."""
_OTHER_SIZES = "The size of tensor"
"""How torch begins to say that tensors do not fit together."""
_HALO = (
    "instep: the model's output and the targets of a patch are cropped to the pixels that it "
    "answers for; the image that it reads is larger, by its halo. To compare with the image, pass "
    "it once more, as a target: instep explain patches"
)


class Mosaic:
    """Tiles of all images of a batch, one piece per tile and group of images."""

    def __init__(
        self,
        images: Images,
        tiles: Sequence[Tile],
        certificate: Certificate,
        *,
        model: nn.Module | None,
        together: int | None,
        ignore: int | Literal["auto"] | None,
        tried: set[Hashable] | None = None,
        watched: Sequence[nn.Module] = (),
        heads: dict[Hashable, dict[int, int]] | None = None,
    ) -> None:
        self.certificate = certificate
        self.tiles = tiles
        self._images = images
        self._model = model
        self._ratios = _ratios(images, certificate)
        self._kinds = {n: self._kind(tensor) for n, tensor in images.targets}
        size = max(min(together or images.samples, images.samples), 1)
        bounds = [*range(0, images.samples, size), images.samples]
        self._rows = [slice(a, b) for a, b in itertools.pairwise(bounds)]
        self._places = [(rows, tile) for rows in self._rows for tile in tiles]
        self._ignore = ignore
        self._items: list[int | None] | None = None
        self._tried = set() if tried is None else tried
        self._watched = watched
        self._heads = {} if heads is None else heads
        reported = certificate.channels
        self._channels = {n: reported[kind] for n, kind in self._kinds.items() if reported}
        """Of the output that each target belongs to, where that is known."""

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Piece]:
        if self._items is None:
            self._items = self._count()
        for (rows, tile), items in zip(self._places, self._items, strict=True):
            yield Piece(self._cut(rows, tile), items, partial(self._cropping, tile), tile.likeness)

    @property
    def is_apart(self) -> bool:
        """Whether pieces are of different images, so that they cannot be added up."""
        return len(self._rows) > 1

    def outputs_of(
        self, tile: Tile, function: Callable[[Any], Any], *, alone: bool = True
    ) -> list[Tensor]:
        """Return what the model makes of a tile when a function is called on it, cropped.

        alone: of the first piece's images, not of all.
        """
        found: list[Tensor] = []
        rows = self._rows[0] if alone else slice(0, self._images.samples)
        with self._cropping(tile, found):
            function(self._cut(rows, tile))
        return found

    def try_on(self, function: Callable[[Any], Any]) -> None:
        """Raise if a patch of these images is not a part of the whole, as `function` uses it."""
        self._look_at_heads(function)
        key = (getattr(function, "__code__", id(function)), self._images.sizes)
        if self._model is None or not self._rows or not self.certificate.is_exact:
            return
        if key not in self._tried:
            what = differs(self, self._model, function)
            if what is not None:
                refuse(what)
            self._tried.add(key)

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """Put what was made of the tiles together to what belongs to the whole images."""
        output = self._output_of(parts)
        dims = self._images.dims
        sizes = [
            parts[0].shape[index - dims] if axis is None else axis.lengths[output]
            for index, axis in enumerate(self.certificate.axes)
        ]
        first = parts[0]
        whole = first.new_empty((self._images.samples, *first.shape[1:-dims], *sizes))
        for (rows, tile), part in zip(self._places, parts, strict=True):
            take(whole[rows], tile.placed(output)).copy_(part)
        return whole

    def part(self, whole: Tensor, index: int) -> Tensor:
        """Return what a tile contributed to something joined."""
        rows, tile = self._places[index]
        return take(whole[rows], tile.placed(self._kind(whole)))

    def _output_of(self, parts: Sequence[Tensor]) -> int:
        for output in range(self._outputs):
            if all(
                part.dim() > self._images.dims and _fits(part, tile, output)
                for (_, tile), part in zip(self._places, parts, strict=True)
            ):
                return output
        raise SplitError(
            f"what was made of the patches ({tuple(parts[0].shape)} of the first) is no part of "
            "the model's output.",
            why="it is put together where the model's cropped output lies.",
            fix='return the output of the model itself, or pass combine="sum" to add the patches.',
            more="two-pass",
        )

    @property
    def _outputs(self) -> int:
        known = [len(axis.reaches) for axis in self.certificate.axes if axis is not None]
        return known[0] if known else 1

    def _kind(self, tensor: Tensor) -> int:
        """Return which output of the model a target belongs to, by its size."""
        dims = self._images.dims
        sizes = tensor.shape[-dims:]
        cut = [
            (axis.lengths, size)
            for axis, size in zip(self.certificate.axes, sizes, strict=True)
            if axis is not None
        ]
        for output in range(self._outputs):
            if all(lengths[output] == size for lengths, size in cut):
                return output
        made = [
            " x ".join(str(lengths[output]) for lengths, _ in cut)
            for output in range(self._outputs)
        ]
        raise SplitError(
            f"a tensor of shape {tuple(tensor.shape)} fits no output of the model.",
            why=f"along the axes that are cut, the model makes {' and '.join(made)} pixels of "
            f"{' x '.join(map(str, self._images.sizes))}, and targets are cut like its outputs.",
            fix="give the target the size of the output, name further inputs with inputs=(...), "
            "or name what is no image with uncut=(...).",
            more="patches",
        )

    def _look_at_heads(self, function: Callable[[Any], Any]) -> None:
        """See how many classes the labels' outputs have, if nothing has told and it matters."""
        labels = [n for n, tensor in self._images.targets if _are_labels(tensor)]
        if self._channels or self._ignore != "auto" or not labels or not self._places:
            return
        key = (getattr(function, "__code__", id(function)), *labels)
        if key not in self._heads:
            rows, tile = self._places[0]
            piece = self._cut(rows, tile)
            cut = list(tensors(piece))
            sizes = {n: cut[n].shape[-self._images.dims :] for n in labels}
            self._heads[key] = channels_seen(self._watched, lambda: function(piece), sizes)
        self._channels, self._items = self._heads[key], None

    def _count(self) -> list[int | None]:
        """Return the target pixels of every piece that count; one read of the device for all.

        None where targets disagree about it: a loss that is returned alone is a mean over which?
        And where labels stand out, and nothing tells whether they are classes.
        """
        if not self._images.targets:
            return [self._area(rows, tile, 0) for rows, tile in self._places]
        counts = []
        for number, tensor in self._images.targets:
            count = self._counted(number, tensor)
            if count is None:
                return [None] * len(self._places)
            counts.append(count)
        shares = [[count / (sum(each) or 1) for count in each] for each in counts]
        return [
            counts[0][k] if all(abs(s[k] - shares[0][k]) < 1e-12 for s in shares) else None
            for k in range(len(self._places))
        ]

    def _counted(self, number: int, target: Tensor) -> list[int] | None:
        output = self._kinds[number]
        if not _are_labels(target) or self._ignore is None:
            return [self._area(rows, tile, output) for rows, tile in self._places]
        odd = None
        if self._ignore == "auto":
            # A label that is no class of the output is one that the loss must be ignoring.
            known = target != IGNORED
            if channels := self._channels.get(number, 0):
                known &= (target >= 0) & (target < max(channels, 2))
            else:
                odd = (known & ((target < 0) | (target == VOID))).any()
        else:
            known = target != self._ignore
        parts = [take(known[rows], tile.placed(output)).sum() for rows, tile in self._places]
        if not parts:
            return []
        *found, is_odd = torch.stack([*parts, parts[0] * 0 if odd is None else odd]).tolist()
        return None if is_odd else [int(n) for n in found]

    def _area(self, rows: slice, tile: Tile, output: int) -> int:
        return int(rows.stop - rows.start) * self._pixels(tile, output)

    def _pixels(self, tile: Tile, output: int) -> int:
        sizes = self._images.sizes
        return math.prod(
            size if span is None else span.outputs[output][1] - span.outputs[output][0]
            for span, size in zip(tile.spans, sizes, strict=True)
        )

    def _cut(self, rows: slice, tile: Tile) -> Any:
        images = self._images

        def change(number: int, tensor: Tensor) -> Tensor:
            if number in self._ratios:
                return take(tensor[rows], tile.read(self._ratios[number]))
            if number in self._kinds:
                return take(tensor[rows], tile.placed(self._kinds[number]))
            if tensor.dim() and len(tensor) == images.samples and len(self._rows) > 1:
                return tensor[rows]
            return tensor

        return renewed(images.batch, change)

    @contextlib.contextmanager
    def _cropping(self, tile: Tile, seen: list[Tensor] | None = None) -> Iterator[None]:
        """Crop what the model makes of a tile to what the tile answers for; note it if asked."""
        if self._model is None or all(span is None for span in tile.spans):
            yield
            return
        calls = 0
        number, first = self._images.inputs[0]
        wanted = take(first[:1], tile.read(self._ratios[number])).shape[-self._images.dims :]

        def crop(_: nn.Module, args: Any, kwargs: Any, result: Any) -> Any:
            nonlocal calls
            calls += 1
            given = next(iter(tensors((*args, *kwargs.values()))), None)
            if given is None or given.shape[-len(wanted) :] != wanted:
                _refuse_call(given, wanted)
            cropped = renewed(result, lambda output, made: take(made, tile.crop(output)))
            if seen is not None:
                seen.extend(tensors(cropped))
            return cropped

        handle = self._model.register_forward_hook(crop, with_kwargs=True)
        try:
            yield
        except RuntimeError as error:
            if calls and _OTHER_SIZES in str(error):
                error.add_note(_HALO)
            raise
        finally:
            handle.remove()
        if not calls:
            raise SplitError(
                f"the {type(self._model).__name__} was not called on the patch.",
                why="its output is cropped when it is called as a module; a method of it is not "
                "seen.",
                fix="call the model itself in the loss function, or name the module that is called "
                "with Patches(model=...).",
                more="patches",
            )


def _are_labels(target: Tensor) -> bool:
    return not target.is_floating_point() and target.dtype is not torch.bool


def _fits(part: Tensor, tile: Tile, output: int) -> bool:
    sizes = part.shape[-len(tile.spans) :]
    return all(
        span is None or span.outputs[output][1] - span.outputs[output][0] == size
        for span, size in zip(tile.spans, sizes, strict=True)
    )


def _ratios(images: Images, certificate: Certificate) -> dict[int, list[Fraction]]:
    """Return the pixels of each input per pixel of the first; they must be cut at whole pixels."""
    found = {}
    for number, tensor in images.inputs:
        sizes = zip(tensor.shape[-images.dims :], images.sizes, strict=True)
        found[number] = [Fraction(n, m) for n, m in sizes]
        for ratio, axis in zip(found[number], certificate.axes, strict=True):
            if axis is not None and axis.align % ratio.denominator:
                raise SplitError(
                    f"an input of shape {tuple(tensor.shape)} cannot be cut with the first one.",
                    why=f"it has {ratio} pixels per pixel of the first, which is no whole number "
                    "at the cuts.",
                    fix="resize it to the size of the first input, or to a whole multiple.",
                    more="patches",
                )
    return found


def _refuse_call(given: Tensor | None, wanted: torch.Size) -> None:
    shape = None if given is None else tuple(given.shape)
    raise SplitError(
        f"the model was called on {shape}, the patch has {tuple(wanted)} pixels.",
        why="its output is cropped as that of the patch, which this is not.",
        fix="call the model on the patch itself; name a part of it with Patches(model=...) if only "
        "that part is.",
        more="patches",
    )
