"""The certificate: what is known about cutting a model's images, or why it cannot be done exactly.

Finding it takes a copy of the model and some dozens of runs on small images, once per model and
remainder of the image's size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, NoReturn

from instep.errors import SplitError
from instep.splits import probe
from instep.splits.blame import who_depends_on_place, who_looks_everywhere
from instep.splits.proof import Proof, prove
from instep.splits.reach import Axis, halo
from instep.splits.subject import Subject

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from torch import Tensor, nn

PROVEN = 1e-10

WHY = {
    "global": "{who} looks at the whole image at once, so a tile cannot stand for its part of it",
    "position": "{who} makes something else of a pixel in a tile than in the whole image: it "
    "depends on where the pixel is, or on how large the image is",
    "remainder": "{size} pixels (axis {axis}) are no multiple of the stride {align}, and {who} "
    "resizes by an odd factor then, or refuses: tiles do not line up with the whole",
    "size": "{who} does not run on images of other sizes, or its output does not grow with them",
    "no image": "an output of {who} has no image axes",
    "random": "{who} draws random numbers, and differs from itself on the same image",
    "buffers": "the forward of {who} changes its buffers, so every tile meets another model than "
    "the tile before",
    "proof": "with the halo that was found, {who} over tiles still differs",
}

FIX = {
    "global": "replace it by something local (a norm over channels only, a BatchNorm in eval "
    "mode), or pass approximate=True to go on without equality; for a pooled head, split its trunk "
    "with encode=.",
    "position": "resize with align_corners=False and a scale_factor, give positions as an input of "
    "their own, or pass approximate=True.",
    "remainder": "pad images and targets to {more} pixels along axis {axis}, or crop them to "
    "{fewer}.",
    "size": "use a model that runs on any size, or halo=0 for independent patches. If the batch "
    "axis is missing, add it: image[None].",
    "type": "let types follow the input (x.to(weight.dtype) instead of x.float()), or pass halo=0 "
    "for independent patches.",
    "no image": "return the dense prediction only, or split the trunk with encode=.",
    "random": "use nn.Dropout modules, which are known, or pass approximate=True.",
    "buffers": "put the layer that does so (spectral_norm, a counter) into eval mode, or pass "
    "approximate=True.",
    "proof": "please report the model; approximate=True goes on.",
}
OVERLAP = 32
"""The halo of an approximate split whose reach has no end."""
CORE = 64
"""The size of the cores on which an approximate split is measured."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """How a model's images are cut, and how that was shown to be right.

    error: relative error of the gradient over tiles against the whole, in float64; NaN if it was
        not measured.
    """

    axes: tuple[Axis | None, ...]
    proofs: tuple[Proof, ...]
    reason: str | None
    """Why the tiles do not add up to the whole image; None if they do."""
    dropouts: tuple[str, ...]
    channels: tuple[int, ...] = ()
    """Of each output; 0 where it has no axis for them."""

    @property
    def error(self) -> float:
        """The largest relative error of the gradient that was measured."""
        return max((proof.error for proof in self.proofs), default=math.nan)

    @property
    def output_error(self) -> float:
        """The largest relative error of outputs over tiles that was measured."""
        return max((proof.output_error for proof in self.proofs), default=math.nan)

    @property
    def is_exact(self) -> bool:
        """Whether the update from patches is the whole image's."""
        return self.reason is None

    def __str__(self) -> str:
        lines = []
        for index, axis in enumerate(self.axes):
            if axis is None:
                lines.append(f"axis {index}: not cut")
                continue
            left, right = halo(axis)
            scales = ", ".join(str(reach.scale) for reach in axis.reaches)
            lines.append(
                f"axis {index}: {axis.length} pixels, halo {left} before and {right} after, cuts "
                f"at multiples of {axis.align}, output pixels per input pixel: {scales}"
            )
        for proof in self.proofs:
            size = " x ".join(map(str, proof.sizes))
            lines.append(
                f"gradient over {proof.tiles} tiles of a {size} image against the whole, in "
                f"float64: relative error {proof.error:.1e}"
            )
        lines.append("equal to the whole image" if self.is_exact else f"NOT equal: {self.reason}")
        if self.dropouts:
            lines.append(
                f"dropout ({', '.join(self.dropouts)}) draws a mask per patch, not one per image"
            )
        return "\n".join(lines)


def certify(
    model: nn.Module,
    inputs: Sequence[Tensor],
    lengths: Sequence[int | None],
    *,
    given: int | None = None,
    is_approximate: bool = False,
) -> Certificate:
    """Find out how images of these lengths are cut; None stands for an axis that is not cut.

    given: a halo in input pixels to use instead of the one that would be found.
    """
    dims = len(lengths)
    sizes = inputs[0].shape[-dims:]
    ratios = [
        [Fraction(n, m) for n, m in zip(tensor.shape[-dims:], sizes, strict=True)]
        for tensor in inputs
    ]
    subject = Subject(model, inputs, ratios)
    reason = f"halo={given} is smaller than what the model looks at"
    if given is None:
        try:
            return _exact(subject, lengths)
        except probe.Unsplittable as found:
            reason = _reason(subject, found)
            if not is_approximate:
                _refuse(reason, found)
    plain = Subject(model, inputs, ratios, without_norms=True)
    return _approximate(subject, plain, lengths, given, reason)


def _exact(subject: Subject, lengths: Sequence[int | None]) -> Certificate:
    # First, because it would look like a dependence on the place.
    if probe.is_random(subject, probe.side_that_runs(subject)):
        raise probe.Unsplittable("random", 0)
    side, axes = _axes(subject, lengths, None)
    if subject.changes_buffers(subject.images([side] * subject.dims)):
        raise probe.Unsplittable("buffers", 0)
    proofs = prove(subject, axes, side)
    if not max(max(proof.error, proof.output_error) for proof in proofs) <= PROVEN:
        raise probe.Unsplittable("proof", 0)
    channels = _channels(subject, side)
    return Certificate(tuple(axes), tuple(proofs), None, tuple(subject.dropouts), channels)


def _approximate(
    subject: Subject,
    plain: Subject,
    lengths: Sequence[int | None],
    given: int | None,
    reason: str,
) -> Certificate:
    """Cut as the model without its norms would be cut, and measure what that does with them."""
    try:
        side, axes = _axes(plain, lengths, given)
    except probe.Unsplittable as found:
        if given is not None:
            _refuse(_reason(plain, found), found)
        try:
            side, axes = _axes(plain, lengths, OVERLAP)
        except probe.Unsplittable as again:
            _refuse(_reason(plain, again), again)
        reason = f"{reason}; a halo of {OVERLAP} pixels was taken"
    proofs = prove(subject, axes, side, core=CORE)
    error = max(max(proof.error, proof.output_error) for proof in proofs)
    known: str | None = reason
    if given is not None:
        known = None if error <= PROVEN else _why_given_is_not_enough(subject, lengths, reason)
    channels = _channels(subject, side)
    return Certificate(tuple(axes), tuple(proofs), known, tuple(subject.dropouts), channels)


def _why_given_is_not_enough(subject: Subject, lengths: Sequence[int | None], reason: str) -> str:
    """Return the module that no halo is enough for, if there is one."""
    try:
        _axes(subject, lengths, None)
    except probe.Unsplittable as found:
        return _reason(subject, found)
    return reason


def _channels(subject: Subject, side: int) -> tuple[int, ...]:
    made = subject.outputs(subject.images([side] * subject.dims))
    return tuple(t.shape[1] if t.dim() == subject.dims + 2 else 0 for t in made)


def _axes(
    subject: Subject, lengths: Sequence[int | None], given: int | None
) -> tuple[int, list[Axis | None]]:
    side = probe.side_that_runs(subject)
    axes: list[Axis | None] = []
    for index, length in enumerate(lengths):
        axis = None
        if length is not None:
            sight = probe.look(subject, index, side, subject.stride(index), given=given)
            axis = probe.axis_of(subject, sight, side, length, given=given)
        axes.append(axis)
    return side, axes


def _reason(subject: Subject, found: probe.Unsplittable) -> str:
    who = f"`{type(subject.model).__name__}`"
    side = max(probe.SIDES[1], found.side)
    if found.kind == "global":
        who = who_looks_everywhere(subject, found.axis, side, found.size)
    elif found.kind == "position":
        who = who_depends_on_place(subject, found.axis, side, found.size, probe.STEP)
    return WHY[found.kind].format(who=who, size=found.size, axis=found.axis, align=found.align)


def _refuse(reason: str, found: probe.Unsplittable) -> NoReturn:
    text = str(found.__cause__ or "")
    fix = FIX[found.kind]
    if found.kind == "size" and any(word in text for word in ("dtype", "scalar type", "Double")):
        reason, fix = f"it is tried in float64, where it fails: {text}", FIX["type"]
    elif found.kind == "remainder":
        fewer = found.size // found.align * found.align
        fix = fix.format(more=fewer + found.align, fewer=fewer, axis=found.axis)
        # It was tried at another size, which is what the model's own words are about.
        if text:
            reason = f"{reason} (at {found.tried} pixels, with the same rest, it says: {text})"
    elif text:
        reason = f"{reason} ({text})"
    # The finding's own traceback is about the probe, not about anything the user wrote.
    raise SplitError(
        "this model cannot be trained on patches as on the whole image.",
        why=f"{reason}.",
        fix=fix,
        more="patches",
    ) from None


def shifted(certificate: Certificate, lengths: Sequence[int | None]) -> Certificate | None:
    """Return the same certificate for images of other lengths, if their remainders are the same."""
    axes: list[Axis | None] = []
    for axis, length in zip(certificate.axes, lengths, strict=True):
        if axis is None or length is None:
            if axis is not None or length is not None:
                return None
            axes.append(None)
            continue
        more = length - axis.length
        if more % axis.align:
            return None
        made = zip(axis.lengths, axis.reaches, strict=True)
        moved = tuple(size + int(reach.scale * more) for size, reach in made)
        axes.append(replace(axis, length=length, lengths=moved))
    return replace(certificate, axes=tuple(axes))


def recalled(known: Sequence[Certificate], lengths: Sequence[int | None]) -> Certificate | None:
    """Return a certificate for images of these lengths, if one that is known can be shifted."""
    moved = (shifted(certificate, lengths) for certificate in known)
    return next((certificate for certificate in moved if certificate is not None), None)


def looks_of(model: nn.Module) -> Hashable:
    """Return what tells a model that was changed since it was looked at: its parts and settings."""
    parts = []
    for name, module in model.named_modules():
        plain = (
            (key, value)
            for key, value in vars(module).items()
            if isinstance(value, str | int | float | tuple) and not key.startswith("_instep")
        )
        hooks = len(module._forward_hooks) + len(module._forward_pre_hooks)  # noqa: SLF001
        parts.append((name, type(module), repr(sorted(plain)), hooks, "forward" in vars(module)))
    return tuple(parts)
