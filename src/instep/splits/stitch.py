"""`stitch`: what a model makes of an image of any size, one tile in memory at a time."""

from __future__ import annotations

import weakref
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from instep.errors import InstepError, SplitError, four_lines, warn
from instep.splits.certificate import Certificate, certify, looks_of, recalled
from instep.splits.coupling import require_independent
from instep.splits.grids import Blended, Exact, Grid, Uncut
from instep.splits.micro import whole_number
from instep.splits.probe import Unsplittable
from instep.splits.reading import tensor_of
from instep.splits.running import Run, View
from instep.splits.tree import renewed, tensors
from instep.splits.trial import undisturbed
from instep.splits.writing import Canvas, outs_of, require_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from instep.splits.blending import Blend
    from instep.splits.running import Place

_known: weakref.WeakKeyDictionary[nn.Module, dict[Any, list[Certificate]]] = (
    weakref.WeakKeyDictionary()
)


def stitch(
    model: Callable[..., Any],
    image: Any,
    patch: int | tuple[int, ...] = 512,
    *,
    halo: int | Literal["auto"] = "auto",
    overlap: int | tuple[int, ...] | None = None,
    blend: Blend = "linear",
    batch: int = 1,
    prepare: Callable[[Tensor], Tensor] | None = None,
    out: Any = None,
    device: torch.device | str | None = None,
    approximate: bool = False,
) -> Any:
    """Run a model over an image tile by tile: the output is the whole image's.

    image: samples, channels and image axes (N, C, H, W); a tensor, a numpy array or memmap, a zarr
        array or anything with a shape that is cut by slices, or the path of a .npy or .tif file.
        Only the tile at work is read. With one `patch` size per axis, samples may be left out.
    patch: pixels along each image axis that a tile answers for.
    halo: how much more it reads, as in `Patches`: what the model looks at, found and proven.
    overlap: for models that look at the whole image at once: windows of `patch` pixels that overlap
        by so many are blended, by weights that sum to one. Not equal to the whole image's output.
    blend: "linear" weights rise over the overlap, "gaussian" ones over half the window.
    batch: how many tiles of the same shape are run together, if the model does not couple them.
    prepare: done to what was read, before the model: `lambda tile: tile.float() / 255`. It must not
        look at other pixels.
    out: where to write: a tensor, an array, or the path of a .npy file to make; by default a new
        tensor. With several outputs, a structure like the model's output. It is returned.
    device: where tiles are put for a model without parameters; else they go where those are.
    approximate: take the halo of the model without its norms, and say that this is not equal.

    No graph is kept, and the model stays in the mode it is in: call `model.eval()` first.

    >>> import torch, instep
    >>> model = torch.nn.Conv2d(1, 2, 5, padding=2).eval()
    >>> image = torch.randn(1, 1, 90, 70)
    >>> made = instep.stitch(model, image, patch=32)
    >>> torch.allclose(made, model(image), atol=1e-6)
    True
    """
    view = View.of(image, patch)
    _require_options(halo, overlap, blend, batch)
    _mention_mode(model)
    require_apart(view.array, out)
    run = Run(model, view, prepare, _device(model, view, device))
    painting = None
    try:
        painting = _begun(run, halo, overlap, blend, out, approximate=approximate)
        return painting.finished(batch)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        # Where a tile was painted, samples are where the model wants them.
        has_run = painting is not None and painting.has_begun
        if not (isinstance(patch, tuple) or has_run or _is_known(error)):
            _require_samples(run, error)
        raise


def _begun(
    run: Run,
    halo: int | Literal["auto"],
    overlap: int | tuple[int, ...] | None,
    blend: Blend,
    out: Any,
    *,
    approximate: bool,
) -> _Painting:
    """Decide how the image is cut."""
    view = run.view
    if all(n <= size for n, size in zip(view.sizes, view.patch, strict=True)):
        return _Painting(run, Uncut(len(view.sizes)), out)
    if overlap is None:
        certificate = _certificate(run, halo, is_approximate=approximate)
        return _Painting(run, Exact(certificate, view.patch), out)
    return _blended(run, _overlaps(overlap, view.patch), blend, out)


def _is_known(error: BaseException) -> bool:
    """Whether it says itself what is wrong: then the model is not run again to find out."""
    # What is refused of a model that has raised has the model's own error at its root.
    root: BaseException = error
    while (before := root.__cause__ or root.__context__) is not None:
        root = before
    is_memory = isinstance(root, torch.OutOfMemoryError | MemoryError)
    if is_memory or any(text in str(root) for text in ("out of memory", "DefaultCPUAllocator: ")):
        return True
    return isinstance(error, InstepError) and isinstance(root, InstepError | Unsplittable)


def _require_samples(run: Run, error: Exception) -> None:
    """Raise if it was the dimension of the samples that was missing: with it the model runs."""
    shape = tuple(run.view.array.shape)
    part = (slice(None), *(slice(0, run.view.patch[0]) for _ in shape[1:]))
    with undisturbed(run.model) if isinstance(run.model, nn.Module) else nullcontext():
        runs = _runs(run.start) or not _runs(lambda: run.made([tensor_of(run.view.array[part])]))
    if runs:
        return
    count = f"{shape[0]} sample{'s' * (shape[0] != 1)} of {shape[1]} channels"
    raise SplitError(
        f"the image of shape {shape} has no dimension of samples.",
        why=f"it is read as {count}, on which the model does not run; as one sample it runs.",
        fix="pass image[None], or one patch size per image axis: "
        f"patch=({', '.join([str(run.view.patch[0])] * (len(shape) - 1))}).",
        more="patches",
    ) from error


def _runs(trial: Callable[[], object]) -> bool:
    try:
        trial()
    except Exception:  # noqa: BLE001 -- whatever a model raises, it does not run
        return False
    return True


def _blended(run: Run, overlap: Sequence[int], blend: Blend, out: Any) -> _Painting:
    """Run the first window, which tells the scales of the outputs; the last one if need be."""
    view = run.view
    made = {(0, 0): run.start()}
    grid = Blended(view.sizes, view.patch, overlap, blend, list(tensors(made[0, 0])))
    if grid.is_ragged:
        # Whether a model rounds up or down where its stride does not fit, it tells only there.
        last = (0, len(grid) - 1)
        made[last] = run([last], grid)
        grid.settle(list(tensors(made[last])))
    return _Painting(run, grid, out, made)


class _Painting:
    """The outputs, which are made with the first tile and painted tile by tile."""

    def __init__(
        self, run: Run, grid: Grid, out: Any, made: dict[Place, Any] | None = None
    ) -> None:
        self._run = run
        self._made = made or {}
        self._grid = grid
        self._out = out
        self._canvases: list[Canvas] = []
        self._whole: Any = None

    @property
    def has_begun(self) -> bool:
        """Whether the model has made a tile."""
        return bool(self._made) or self._whole is not None

    def paint(self, group: Sequence[Place], result: Any = None) -> None:
        """Run the model on some tiles, unless its result is there, and write what it makes."""
        if result is None:
            result = self._run(group, self._grid)
        if self._whole is None:
            self._canvases = self._made_for(result)
            self._whole = renewed(result, lambda output, _: self._canvases[output].array)
        pairs = zip(tensors(result), self._canvases, strict=True)
        for output, (made, canvas) in enumerate(pairs):
            for row, (sample, tile) in enumerate(group):
                self._write(canvas, output, made[row], sample, tile)

    def finished(self, batch: int) -> Any:
        """Paint what is left and return the outputs, in the structure of the model's."""
        view, grid = self._run.view, self._grid
        places = [(sample, tile) for sample in range(view.samples) for tile in range(len(grid))]
        left = [place for place in places if place not in self._made]
        if batch > 1 and len(places) > 1:
            require_independent(self._run, grid, batch)
        for place in list(self._made):
            self.paint([place], self._made.pop(place))
        for group in _together(left, grid, view, batch):
            self.paint(group)
        for canvas in self._canvases:
            canvas.close()
        return self._whole

    def _write(self, canvas: Canvas, output: int, made: Tensor, sample: int, tile: int) -> None:
        part = self._grid.part(tile, output, made)
        slices = self._grid.placed(tile, output)
        if self._grid.adds:
            canvas.add(sample, slices, part)
        else:
            canvas.put(sample, slices, part)

    def _made_for(self, result: Any) -> list[Canvas]:
        grid, view = self._grid, self._run.view
        found = []
        pairs = zip(tensors(result), outs_of(result, self._out), strict=True)
        for output, (made, given) in enumerate(pairs):
            ahead = made.shape[1 : max(made.dim() - len(view.sizes), 1)]
            shape = (*ahead, *grid.lengths(output, made))
            if view.has_samples:
                shape = (view.samples, *shape)
            dtype = grid.part(0, output, made[0]).dtype
            canvas = Canvas(given, shape, dtype, view.device, has_samples=view.has_samples)
            if grid.adds and not canvas.is_zero:
                for sample in range(view.samples):
                    for tile in range(len(grid)):
                        canvas.clear(sample, grid.placed(tile, output))
            found.append(canvas)
        return found


def _together(places: Sequence[Place], grid: Grid, view: View, batch: int) -> Iterator[list[Place]]:
    """Group tiles of the same shape; the places wait, nothing of them is read yet."""
    waiting: dict[tuple[int, ...], list[Place]] = {}
    for place in places:
        shape = view.shape_of(grid.read(place[1]))
        waiting.setdefault(shape, []).append(place)
        if len(waiting[shape]) == batch:
            yield waiting.pop(shape)
    yield from waiting.values()


def _certificate(run: Run, halo: int | Literal["auto"], *, is_approximate: bool) -> Certificate:
    model, view = run.model, run.view
    if not isinstance(model, nn.Module):
        raise SplitError(
            f"the model is a {type(model).__name__}.",
            why="how far it looks is found on a copy of a module.",
            fix="put it into a torch.nn.Module, or pass overlap= to blend windows of it.",
            more="patches",
        )
    pairs = zip(view.sizes, view.patch, strict=True)
    lengths = [n if n > size else None for n, size in pairs]
    # Everything that says what the model does, as far as that can be said without running it.
    example = run.example()
    key = (looks_of(model), example.shape[1 : -len(lengths)], example.dtype, halo, is_approximate)
    known = _known.setdefault(model, {}).setdefault(key, [])
    certificate = recalled(known, lengths)
    if certificate is None:
        try:
            # The proof compares gradients, which copies made in inference mode do not have.
            with torch.inference_mode(mode=False):
                certificate = certify(
                    model,
                    [example],
                    lengths,
                    given=None if halo == "auto" else int(halo),
                    is_approximate=is_approximate,
                )
        except SplitError as error:
            _refuse(error, model, example)
            raise
        known.append(certificate)
    if halo == "auto" and certificate.reason is not None:
        text = four_lines(
            "the output over tiles is not the whole image's.",
            why=f"{certificate.reason}. On a small image it is off by "
            f"{certificate.output_error:.1%} of the largest value.",
            fix="approximate=True asked to go on; overlap= hides the borders of tiles better.",
            more="patches",
        )
        warn(text)
    return certificate


def _refuse(error: SplitError, model: nn.Module, example: Tensor) -> None:
    fix = "pass overlap= to blend windows that overlap, or approximate=True to go on with a halo."
    if any(module.training for module in model.modules()):
        fix = f"call model.eval() first, which fixes BatchNorm and dropout; else {fix}"
    if not example.is_floating_point():
        fix = (
            f"pass prepare=lambda tile: tile.float(), if the model takes no {example.dtype}; {fix}"
        )
    raise SplitError(
        "this model does not make of tiles what it makes of the whole image.",
        why=error.why,
        fix=fix,
        more="patches",
    ) from error


def _mention_mode(model: Any) -> None:
    """Say which modules behave as in training; what they do is what was asked for."""
    if not isinstance(model, nn.Module):
        return
    names = [
        f"`{name}` ({type(module).__name__})"
        for name, module in model.named_modules()
        if module.training
        and ((isinstance(module, _DropoutNd) and module.p) or isinstance(module, _BatchNorm))
    ]
    if names:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        text = four_lines(
            "the model is in training mode.",
            why=f"{names[0]}{more} drops values or takes statistics from each tile.",
            fix="call model.eval() before stitching; the mode is not changed here.",
            more="patches",
        )
        warn(text)


def _device(model: Any, view: View, device: torch.device | str | None) -> torch.device:
    parameters = model.parameters() if isinstance(model, nn.Module) else iter(())
    held = next((p.device for p in parameters), None)
    if device is None:
        return view.device if held is None else held
    asked = torch.device(device)
    # "cuda" is any of them, as everywhere in torch.
    if held is not None and (held.type != asked.type or asked.index not in (None, held.index)):
        raise SplitError(
            f"device is {str(asked)!r}, the model is on {str(held)!r}.",
            why="tiles are put where the model is, and it is not moved here.",
            fix=f"call model.to({str(asked)!r}) first, and leave device out.",
            more="patches",
        )
    return asked if held is None else held


def _overlaps(overlap: int | tuple[int, ...], patch: Sequence[int]) -> tuple[int, ...]:
    found = overlap if isinstance(overlap, tuple) else (overlap,) * len(patch)
    fits = len(found) == len(patch)
    for shared, size in zip(found, patch, strict=False):
        number = whole_number(shared)
        fits = fits and number is not None and 0 <= number < size
    if not fits:
        raise SplitError(
            f"overlap is {overlap!r}, patch is {tuple(patch)}.",
            why="windows begin patch - overlap pixels after each other, along each axis.",
            fix="pass a number of pixels smaller than the patch: a quarter of it is usual.",
            more="patches",
        )
    return tuple(int(shared) for shared in found)


def _require_options(halo: int | Literal["auto"], overlap: Any, blend: str, batch: int) -> None:
    if halo != "auto" and (whole_number(halo) is None or int(halo) < 0):
        raise SplitError(
            f"halo is {halo!r}.",
            why="it is how many pixels a tile reads beyond what it answers for.",
            fix='leave it out ("auto"), or pass a number of pixels.',
            more="patches",
        )
    if halo != "auto" and overlap is not None:
        raise SplitError(
            f"there is a halo ({halo}) and an overlap ({overlap}).",
            why="a halo is read and cropped, an overlap is blended.",
            fix="pass one of them.",
            more="patches",
        )
    if blend not in ("linear", "gaussian"):
        raise SplitError(
            f"blend is {blend!r}.",
            why="it is how windows that overlap are weighted.",
            fix='pass "linear" or "gaussian".',
            more="patches",
        )
    if (whole_number(batch) or 0) < 1:
        raise SplitError(
            f"batch is {batch!r}.",
            why="it is how many tiles are run together.",
            fix="pass batch=1 or more.",
            more="patches",
        )
