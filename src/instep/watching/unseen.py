"""What a watch has not seen: all of it for the page, the gravest of it for the summary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.trace import WEIGHTS_MOVED, Opaque

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.watching.job import Job

GRADIENTS_MOVED = "gradients changed without a count between a step and the next backward"
"""What is opaque then. Here, because who sums up a job does not import torch."""
_MOVED = (
    "Weights changed between a backward and its step, or without a step that was seen, as they do "
    "where a step is compiled or does more than to step; those windows are not judged."
)
_GRADIENTS_MOVED = (
    "Gradients that a step had used were changed before the next backward where torch does not "
    "count it, as by `grad.data.mul_()`; those windows are not judged."
)


def aside(job: Job) -> Iterator[str]:
    """Say what a summary must not keep quiet about: it would be taken for the whole."""
    is_seen = any(job.series.updates.values()) or job.recorder.elsewhere.total()
    if not is_seen and _is_trained(job):
        yield "Weights changed all the same: a step that is compiled or made by hand is not seen."
    yield from _processes(job)


def unseen(job: Job) -> Iterator[str]:
    """Say what could not be seen, and what was seen and not kept."""
    if job.series.left_out:
        yield (
            f"{job.series.left_out:,} moments between the first and the latest are not in the "
            "timeline; they were judged like the others."
        )
    if job.stream.full:
        yield (
            "The job kept doing new things; what came after the first "
            f"{len(job.trace):,} events was not judged."
        )
    yield from _processes(job)
    opaque = _opaque(job)
    if not any(job.series.updates.values()) and _is_trained(job):
        opaque.add(WEIGHTS_MOVED)
    for what in sorted(opaque):
        if what == WEIGHTS_MOVED:
            yield _MOVED
        elif what == GRADIENTS_MOVED:
            yield _GRADIENTS_MOVED
        else:
            yield f"What happens inside {what} could not be followed; its windows are not judged."
    if job.series.updates and not any(name.startswith("loss/") for name in job.series.lines):
        yield "No loss was read: none was on the CPU, or none was a single number."
    measured = sum(len(line) for key, line in job.series.lines.items() if "grad_norm/" in key)
    updates = sum(job.series.updates.values())
    if 0 < measured < updates:
        yield (
            "Gradient norms and update ratios were measured at some of the updates, so that "
            "measuring took next to no time."
        )
    for fault in job.seam.faults:
        yield f"The watcher itself failed: {fault.splitlines()[-1]}"


def _processes(job: Job) -> Iterator[str]:
    elsewhere = job.recorder.elsewhere.total()
    if elsewhere:
        updates = "1 update was" if elsewhere == 1 else f"{elsewhere:,} updates were"
        yield f"{updates} made in other threads: one thread is watched, the first that trains."
    started = job.recorder.processes
    if started:
        processes = "1 process" if started == 1 else f"{started:,} processes"
        yield f"The job started {processes} by itself: what happens there is not watched."


def _opaque(job: Job) -> set[str]:
    return {event.what for event in job.trace if isinstance(event, Opaque)}


def _is_trained(job: Job) -> bool:
    """Say whether weights were changed where no update was seen.

    Loading changes weights, too; it sends no gradients, which autograd tells of by itself, also
    where a whole step is compiled.
    """
    if WEIGHTS_MOVED in _opaque(job):
        return True
    known = (job.book.parameters.get(id(parameter)) for parameter in job.book.grown)
    return any(
        held is not None
        and held.optimizers
        and held.version is not None
        and (parameter := held.parameter) is not None
        and parameter._version != held.version  # noqa: SLF001
        for held in known
    )
