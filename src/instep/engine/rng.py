"""Random states: taken, put back and saved, for torch on every device, Python and numpy.

What is saved is made of tensors, numbers and tuples, so that `torch.load(weights_only=True)` reads
it.
"""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

RandomState = dict[str, Any]


def snapshot() -> Callable[[], Any]:
    """Return the cheapest way to take torch's generators: it runs once per micro-batch."""
    if not uses_cuda():
        return torch.default_generator.get_state
    return lambda: (torch.default_generator.get_state(), torch.cuda.get_rng_state_all())


def widened(taken: Any) -> RandomState:
    """Return what a snapshot took as a state that `restore` puts back."""
    if isinstance(taken, torch.Tensor):
        return {"cpu": taken}
    cpu, cuda = taken
    return {"cpu": cpu, "cuda": cuda}


def uses_cuda() -> bool:
    """Whether there are CUDA generators to take along."""
    return torch.cuda.is_available() and torch.cuda.is_initialized()


def others() -> tuple[Any, Any]:
    """Take Python's generator and, if it is in use, numpy's (about 30 µs)."""
    numpy = sys.modules.get("numpy")
    return random.getstate(), None if numpy is None else numpy.random.get_state()


def widened_others(taken: tuple[Any, Any]) -> RandomState:
    """Return what `others` took as a state that `restore` puts back."""
    python, numpy = taken
    state: RandomState = {"python": python}
    if numpy is not None:
        name, keys, position, has_gauss, cached = numpy
        words = torch.from_numpy(keys.astype("int64"))
        state["numpy"] = (name, words, int(position), int(has_gauss), float(cached))
    return state


def full_state() -> RandomState:
    """Take torch's generators, Python's and, if it is in use, numpy's (about 40 µs)."""
    return widened(snapshot()()) | widened_others(others())


def restore(state: RandomState) -> None:
    """Put back whatever `state` holds."""
    if "cpu" in state:
        torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])
    if "python" in state:
        version, words, gauss = state["python"]
        random.setstate((version, tuple(words), gauss))
    if "numpy" in state:
        import numpy as np  # noqa: PLC0415 -- only where the state was taken with it

        name, words, position, has_gauss, cached = state["numpy"]
        np.random.set_state((name, words.numpy().astype("uint32"), position, has_gauss, cached))


def generators_of(loader: object) -> dict[str, torch.Generator]:
    """Return the generators a DataLoader was given by its user, under the names of their places."""
    found: dict[str, torch.Generator] = {}
    sampler = getattr(loader, "sampler", None)
    batch_sampler = getattr(loader, "batch_sampler", None)
    places = {
        "loader": loader,
        "sampler": sampler,
        "batch_sampler": batch_sampler,
        "batch_sampler.sampler": getattr(batch_sampler, "sampler", None),
    }
    for name, place in places.items():
        generator = getattr(place, "generator", None)
        if isinstance(generator, torch.Generator):
            found[name] = generator
    return found


def states_of(generators: Mapping[str, torch.Generator]) -> dict[str, torch.Tensor]:
    """Return the states of generators as they are now, under their names."""
    return {name: generator.get_state() for name, generator in generators.items()}
