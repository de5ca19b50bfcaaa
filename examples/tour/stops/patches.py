"""Super-resolution of a satellite image from patches: the naive loop beside the exact one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer

from examples.tour import patch_loops, satellite
from examples.tour.loops import Batch
from examples.tour.meter import peak_bytes
from examples.tour.patch_picture import Panel, draw
from examples.tour.show import body_of, progress, side_by_side, table
from examples.tour.stop import Seen, TourError
from examples.tour.stops.one_window import relative_error

PASSES = 50
RATES = (6e-5, 2.5e-4, 1e-3, 4e-3)
BAND = 4
"""Pixels of the truth on either side of a border between patches."""
EXACT = 1e-12
VISIBLE = 1e-2
NOTICEABLE = 0.1
"""Decibels."""
MEBI = 2**20

Loop = Callable[[nn.Module, Optimizer, Batch, int], None]
Shown = Callable[[nn.Module, Tensor], Tensor]
STEPS, NAIVE, ENGINE = "an update per patch", "naive", "instep.Patches"
LOOPS: dict[str, Loop] = {
    STEPS: patch_loops.step_per_patch,
    NAIVE: patch_loops.naive,
    ENGINE: patch_loops.exact,
}
WAYS: dict[str, tuple[str, Shown]] = {
    f"{STEPS}, shown patch by patch": (STEPS, patch_loops.patch_by_patch),
    f"{STEPS}, shown with halo": (STEPS, patch_loops.with_halo),
    f"{NAIVE}, shown patch by patch": (NAIVE, patch_loops.patch_by_patch),
    f"{NAIVE}, shown with halo": (NAIVE, patch_loops.with_halo),
    f"{ENGINE}, shown with halo": (ENGINE, patch_loops.with_halo),
}


@dataclass(frozen=True, slots=True)
class Quality:
    """Decibels of PSNR of a picture: in all, and where patches meet."""

    everywhere: float
    at_borders: float

    @classmethod
    def of(cls, picture: Tensor, truth: Tensor) -> Quality:
        """Compare a picture to the truth."""
        near = patch_loops.borders((truth.shape[-2], truth.shape[-1]), BAND)
        wrong = (picture - truth).double().square()
        return cls(*(float(-10 * part.mean().log10()) for part in (wrong, wrong[..., near])))


@dataclass(frozen=True, slots=True)
class Trained:
    """A model for each learning rate, and which of them was best on images of their own."""

    models: tuple[nn.Module, ...]
    decibels: tuple[float, ...]
    """On those images."""

    @property
    def model(self) -> nn.Module:
        """The best one."""
        return self.models[self.decibels.index(max(self.decibels))]


def with_each(run: Trained, batch: Batch) -> tuple[float, ...]:
    """Return the PSNR of each of the models on these images, run with halo."""
    small, truth = batch
    shown = (patch_loops.with_halo(model, small) for model in run.models)
    return tuple(Quality.of(picture, truth).everywhere for picture in shown)


def network() -> nn.Module:
    """Return the same start for every loop."""
    torch.manual_seed(0)
    return patch_loops.Sharpen()


def trained(name: str, batch: Batch, chosen_on: Batch, passes: int) -> Trained:
    """Train at every rate; the rate is chosen on images that are neither trained on nor shown."""
    models = []
    for index in progress(range(len(RATES)), f"{name:<20}"):
        model = network()
        LOOPS[name](model, Adam(model.parameters(), lr=RATES[index]), batch, passes)
        models.append(model)
    run = Trained(tuple(models), ())
    return replace(run, decibels=with_each(run, chosen_on))


def gradient(loop: Loop, batch: Batch) -> Tensor:
    """Return the gradient of a loop's first update, in float64: a step of SGD is nothing else."""
    model = network().double()
    before = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    loop(model, SGD(model.parameters(), lr=1.0), tuple(t.double() for t in batch), 1)  # type: ignore[arg-type]
    return before - nn.utils.parameters_to_vector(model.parameters()).detach()


def gradient_errors(batch: Batch) -> dict[str, float]:
    """Return how far each loop's gradient is from that of the whole images."""
    wanted = gradient(patch_loops.whole, batch)
    return {name: relative_error(gradient(LOOPS[name], batch), wanted) for name in (NAIVE, ENGINE)}


def memory(loop: Loop, batch: Batch) -> float:
    """Return the MiB of tensors that one update has alive at once."""
    model = network()
    optimizer = SGD(model.parameters(), lr=1e-3)
    return peak_bytes(lambda: loop(model, optimizer, batch, 1)) / MEBI


def stop(out: Path, passes: int = PASSES) -> Seen:
    """Train from patches in three ways, show what they make of another image, and measure."""
    batch = satellite.load(*satellite.TRAINED_ON, size=satellite.TRAINED_SIZE)
    chosen_on = satellite.load(*satellite.CHOSEN_ON, size=satellite.TRAINED_SIZE)
    small, truth = satellite.load(satellite.SHOWN, size=satellite.SHOWN_SIZE)
    _describe(batch, passes)
    runs = {name: trained(name, batch, chosen_on, passes) for name in LOOPS}
    _tell_rates(runs, (small, truth))
    pictures = {"bicubic": patch_loops.bicubic(small)}
    pictures |= {title: show(runs[name].model, small) for title, (name, show) in WAYS.items()}
    found = {title: Quality.of(picture, truth) for title, picture in pictures.items()}
    print("\nAt the rate chosen, PSNR (dB) on the image of the picture, which no loop has seen:\n")
    rows = [[t, f"{q.everywhere:.2f}", f"{q.at_borders:.2f}"] for t, q in found.items()]
    print(table(["", "everywhere", f"within {BAND} pixels of patch borders"], rows))
    errors = gradient_errors(batch)
    large = satellite.load(satellite.SHOWN, size=satellite.LARGE_SIZE)
    used = {
        name: memory(loop, large)
        for name, loop in {"whole image": patch_loops.whole, **LOOPS}.items()
    }
    _tell(errors, used, large[0])
    seen = _seen(errors, used, found, out / "patches.png")
    panels = {"bicubic": Panel(pictures["bicubic"][0], found["bicubic"].everywhere, None)}
    for title in (f"{NAIVE}, shown patch by patch", f"{ENGINE}, shown with halo"):
        with torch.no_grad():
            in_one_piece = runs[WAYS[title][0]].model(small)[0]
        panels[title] = Panel(pictures[title][0], found[title].everywhere, in_one_piece)
    draw(seen.pictures[0], panels=panels, truth=truth[0], cut=2 * patch_loops.PATCH)
    return seen


def _describe(batch: Batch, passes: int) -> None:
    images, _, rows, columns = batch[0].shape
    kept = len(patch_loops.independent_patches(batch)) * patch_loops.PATCH**2
    print(
        f"{satellite.CREDIT}.\n"
        f"×2 super-resolution, trained on {images} pieces of {rows} × {columns} pixels in patches "
        f"of {patch_loops.PATCH}, {passes} passes each.\n"
        "The naive loop takes full patches only, pads each with zeros and averages their means: "
        f"it drops {1 - kept / (rows * columns):.0%} of the pixels.\n"
        "The same start, the same passes; naive and exact make one update per pass, the loop with "
        "an update per patch\nmakes as many as there are patches.\n"
    )
    left = ("naive", body_of(patch_loops.naive))
    print(side_by_side(left, ("exact", body_of(patch_loops.exact))), end="\n\n")


def _tell_rates(runs: dict[str, Trained], shown: Batch) -> None:
    header = ["", *(f"lr {rate:g}" for rate in RATES)]
    print("\nPSNR (dB) on images that decide the learning rate, for each loop by itself:\n")
    chosen = [[name, *(f"{value:.2f}" for value in run.decibels)] for name, run in runs.items()]
    print(table(header, chosen))
    print("\nThe same on the image of the picture, which decides nothing:\n")
    told = [[n, *(f"{value:.2f}" for value in with_each(r, shown))] for n, r in runs.items()]
    print(table(header, told))


def _tell(errors: dict[str, float], used: dict[str, float], small: Tensor) -> None:
    print("\nError of the first update's gradient against the whole images', in float64:")
    print(", ".join(f"{name} {error:.1e}" for name, error in errors.items()))
    rows, columns = small.shape[-2:]
    print(
        f"\nPeak memory of an update on {rows} × {columns} pixels, as bytes of tensors alive at "
        "once\n(counted at every operation; what a kernel uses inside is not seen):"
    )
    print(", ".join(f"{name} {mebi:.1f} MiB" for name, mebi in used.items()))


def _seen(
    errors: dict[str, float], used: dict[str, float], found: dict[str, Quality], path: Path
) -> Seen:
    """Check what is said before it is said; how much PSNR training differs by is only told."""
    if errors[ENGINE] > EXACT:
        raise TourError(f"the gradient over patches is off by {errors[ENGINE]:.1e}")
    if errors[NAIVE] < VISIBLE:
        raise TourError(f"the naive gradient is off by only {errors[NAIVE]:.1e}")
    if used[ENGINE] > used["whole image"] / 2:
        raise TourError(f"patches take {used[ENGINE]:.1f} MiB, half the whole image's or more")
    seams = found[f"{NAIVE}, shown patch by patch"]
    halo, ours = found[f"{NAIVE}, shown with halo"], found[f"{ENGINE}, shown with halo"]
    gained = ours.everywhere - halo.everywhere
    which = "a noticeable difference" if abs(gained) > NOTICEABLE else "no noticeable difference"
    return Seen(
        f"Patches with halo have the whole image's gradient ({errors[ENGINE]:.0e}; naive "
        f"{errors[NAIVE]:.0%} off) in {used[ENGINE] / used['whole image']:.0%} of its memory. "
        f"Its training makes {which} in PSNR here ({gained:+.2f} dB); showing a picture patch by "
        f"patch changes {seams.at_borders - halo.at_borders:+.2f} dB at their borders.",
        (path,),
    )
