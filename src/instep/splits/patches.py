"""`Patches`: images and volumes cut into patches, with the gradient of the whole image."""

from __future__ import annotations

import math
import weakref
from dataclasses import KW_ONLY, dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from instep.errors import SplitError, four_lines, warn
from instep.splits.certificate import Certificate, certify, looks_of, recalled
from instep.splits.images import Images
from instep.splits.micro import whole_number
from instep.splits.mosaic import Mosaic
from instep.splits.reach import Axis, Reach
from instep.splits.tiles import tiles

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from torch import nn


@dataclass(frozen=True, eq=False)
class Patches:
    """Cut images into patches of `patch` pixels: one update per batch, equal to the whole images'.

    patch: pixels of the first input along each image axis that a patch answers for.
    halo: how much more it reads: "auto" is what the model looks at, measured and proven; a number
        of pixels takes that instead; 0 makes independent patches, exact for their sum only.
    inputs: the names or positions in the batch of what the model reads; by default the first
        image. Everything else with image axes is a target, and is cut without the halo.
    uncut: names or positions of tensors that go to every patch as they are.
    images: how many images a piece holds at most; by default all of the batch.
    ignore: the label that does not count, among targets of whole numbers; by default -100 and all
        that are no class of the model's output.
    model: the module whose outputs are cropped to the patch; by default the stepper's.
    approximate: go on, with a warning, where equality with the whole image is impossible.

    The loss function is the same for patches and for whole images: it is given the patch to read,
    the model's output arrives cropped to what the patch answers for, and so do the targets.

    >>> import torch, instep
    >>> model = torch.nn.Conv2d(1, 1, 3, padding=1)
    >>> stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    >>> batch = (torch.randn(2, 1, 20, 30), torch.randn(2, 1, 20, 30))
    >>> def loss_fn(piece):
    ...     image, target = piece
    ...     return (model(image) - target).square().mean()
    >>> update = stepper.step(batch, loss_fn, split=instep.Patches(16))
    >>> update.micro_batches, update.items
    (4, 1200.0)
    """

    patch: int | tuple[int, ...]
    _: KW_ONLY
    halo: int | Literal["auto"] = "auto"
    inputs: str | int | Sequence[str | int] | None = None
    uncut: str | int | Sequence[str | int] = ()
    images: int | None = None
    ignore: int | Literal["auto"] | None = "auto"
    model: nn.Module | None = None
    approximate: bool = False
    _known: weakref.WeakKeyDictionary[nn.Module, dict[Any, list[Certificate]]] = field(
        default_factory=weakref.WeakKeyDictionary, init=False, repr=False
    )

    _tried: weakref.WeakKeyDictionary[nn.Module, set[Hashable]] = field(
        default_factory=weakref.WeakKeyDictionary, init=False, repr=False
    )

    _heads: weakref.WeakKeyDictionary[nn.Module, dict[Hashable, dict[int, int]]] = field(
        default_factory=weakref.WeakKeyDictionary, init=False, repr=False
    )

    def __post_init__(self) -> None:
        sizes = self.patch if isinstance(self.patch, tuple) else (self.patch,)
        if not sizes or any((whole_number(size) or 0) < 1 for size in sizes):
            raise SplitError(
                f"patch is {self.patch!r}.",
                why="it is how many pixels a patch has along each axis.",
                fix="pass Patches(256), or Patches((64, 256, 256)) for volumes.",
                more="patches",
            )
        if self.halo != "auto" and (whole_number(self.halo) is None or int(self.halo) < 0):
            raise SplitError(
                f"halo is {self.halo!r}.",
                why="it is how many pixels a patch reads beyond what it answers for.",
                fix='leave it out ("auto"), or pass a number of pixels; 0 makes them independent.',
                more="patches",
            )
        if self.images is not None and (whole_number(self.images) or 0) < 1:
            raise SplitError(
                f"images is {self.images!r}.",
                why="it is how many images of the batch a piece holds.",
                fix="pass images=1, for example, or leave it out.",
                more="patches",
            )

    def plan(self, batch: Any, models: Sequence[nn.Module] = ()) -> Mosaic:
        """Decide where to cut, having found out how far the model looks."""
        found = Images.of(batch, inputs=self.inputs, uncut=self.uncut)
        patch = self._sizes(found.dims)
        if self.halo == 0:
            certificate = _independent(found, patch)
            model = None
            watched = models if self.model is None else [self.model]
        else:
            model = self._model(models)
            watched = [model]
            certificate = self._certificate(model, found, patch)
        cut = tiles(certificate.axes, patch, stand_alone=self.halo == 0)
        return Mosaic(
            found,
            cut,
            certificate,
            model=model,
            together=self.images,
            ignore=self.ignore,
            tried=None if model is None else self._tried.setdefault(model, set()),
            watched=watched,
            heads=self._heads.setdefault(watched[0], {}) if watched else None,
        )

    def certify(self, batch: Any, model: nn.Module) -> Certificate:
        """Return what is known about cutting these images for this model; print it to read it."""
        found = Images.of(batch, inputs=self.inputs, uncut=self.uncut)
        if self.halo == 0:
            return _independent(found, self._sizes(found.dims))
        return self._certificate(model, found, self._sizes(found.dims))

    def _sizes(self, dims: int) -> tuple[int, ...]:
        patch = self.patch if isinstance(self.patch, tuple) else (self.patch,) * dims
        if len(patch) != dims:
            raise SplitError(
                f"patch has {len(patch)} numbers, the images have {dims} axes.",
                why="a patch has one size per image axis, which are the last ones of a tensor.",
                fix=f"pass one number, or {dims}.",
                more="patches",
            )
        return tuple(int(size) for size in patch)

    def _model(self, models: Sequence[nn.Module]) -> nn.Module:
        if self.model is not None:
            return self.model
        if len(models) != 1:
            raise SplitError(
                f"nothing says which of {len(models)} models reads the images.",
                why="its outputs are cropped to what a patch answers for.",
                fix="pass Patches(..., model=network).",
                more="patches",
            )
        return models[0]

    def _certificate(self, model: nn.Module, found: Images, patch: Sequence[int]) -> Certificate:
        lengths = [n if n > size else None for n, size in zip(found.sizes, patch, strict=True)]
        if all(length is None for length in lengths) or not found.samples:
            return Certificate((None,) * found.dims, (), None, ())
        shapes = tuple((tuple(t.shape[1 : -found.dims]), t.dtype) for t in found.read)
        known = self._known.setdefault(model, {}).setdefault((shapes, looks_of(model)), [])
        before = recalled(known, lengths)
        if before is not None:
            return before
        certificate = certify(
            model,
            found.read,
            lengths,
            given=None if self.halo == "auto" else int(self.halo),
            is_approximate=self.approximate,
        )
        known.append(certificate)
        self._tried.pop(model, None)
        smaller = certificate.reason is not None and certificate.reason.startswith("halo=")
        if certificate.reason is not None and not smaller:
            text = four_lines(
                "patches of this model do not add up to the whole image.",
                why=f"{certificate.reason}. On a small image the gradient is off by "
                f"{certificate.error:.1%}. (Said once.)",
                fix="see Patches.certify(batch, model); approximate=True or halo= asked to go on.",
                more="patches",
            )
            warn(text)
        return certificate


def _independent(found: Images, patch: Sequence[int]) -> Certificate:
    """Return how images are cut when every patch is on its own: only targets' sizes matter."""
    axes: list[Axis | None] = []
    for index, (length, size) in enumerate(zip(found.sizes, patch, strict=True)):
        held = [t.shape[index - found.dims] for t in (*found.read, *(t for _, t in found.targets))]
        scales = [Fraction(n, length) for n in held]
        align = math.lcm(*(scale.denominator for scale in scales))
        if length > size and align > size:
            raise SplitError(
                f"targets of {held[-1]} pixels cannot be cut with images of {length}.",
                why=f"only every {align} pixels do both have a whole number of them, and a patch "
                f"has {size}.",
                fix="give targets the size of the image or a whole multiple of it, or use the "
                "halo that is found by itself.",
                more="patches",
            )
        made = tuple(Reach(scale, 0, 0) for scale in scales[len(found.read) :] or [Fraction(1)])
        lengths = tuple(int(reach.scale * length) for reach in made)
        axes.append(Axis(length, align, made, lengths))
    return Certificate(tuple(axes), (), "halo=0: independent patches, exact for their sum", ())
