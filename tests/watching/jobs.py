"""Small jobs to be watched: source that is executed as if it were a file."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch

import instep


def run(source: str, *, watched: bool = True, seed: int = 0, **names: Any) -> Any:
    """Execute a job; return it with the names that it has defined as `job.left`."""
    left = {"torch": torch, "F": torch.nn.functional, "__name__": "__main__", **names}
    code = compile(source, "train.py", "exec")
    torch.manual_seed(seed)
    job = instep.Job()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # small tensors: more threads only wait for each other
    try:
        with job if watched else nullcontext():
            exec(code, left)  # noqa: S102  # it is the test's own
    finally:
        torch.set_num_threads(threads)
    job.left = left
    assert job.seam.faults == []
    return job


def gauges(job: Any) -> dict[str, Any]:
    """Return what was measured, by quantity."""
    return {event.quantity: event for event in job.gauges}


def found(job: Any) -> list[tuple[str, int]]:
    """Return codes and lines of what was found."""
    return sorted((finding.code, finding.place.line) for finding in job.findings)


def hooks(model: torch.nn.Module) -> int:
    """Count the hooks on a model and its parameters."""
    count = sum(len(module._forward_pre_hooks) for module in model.modules())
    for parameter in model.parameters():
        for kind in ("_backward_hooks", "_post_accumulate_grad_hooks"):
            count += len(getattr(parameter, kind) or ())
    return count
