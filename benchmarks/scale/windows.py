"""The time and the bytes of one window, over the number of ranks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from benchmarks.scale.machines import moved
from benchmarks.scale.uneven import expected_maximum

if TYPE_CHECKING:
    from benchmarks.scale.machines import Machine

Kind = Literal["ddp", "fsdp", "fsdp-kept"]
"""`fsdp` gathers the parameters for every forward and every backward; `fsdp-kept` once a window."""
Sync = Literal["window", "micro-batch"]
KINDS: tuple[Kind, ...] = ("ddp", "fsdp", "fsdp-kept")
SYNCS: tuple[Sync, ...] = ("window", "micro-batch")
_BACKWARD = 2 / 3
"""Of a micro-batch: a backward computes twice what its forward does."""


@dataclass(frozen=True)
class Job:
    """What every rank does in a window."""

    parameters: int
    micro_batches: int
    micro_seconds: float
    """Forward and backward of one micro-batch."""
    close_seconds: float
    """Of the update of all parameters."""
    layers: int
    """Groups of parameters that are gathered and reduced together."""
    parameter_bytes: int = 4
    """Of a parameter as it is gathered."""
    gradient_bytes: int = 4
    state_bytes: int = 12
    """Of the optimizer, with the parameter itself."""
    variation: float = 0.0
    """Standard deviation of a micro-batch's time over its mean: ragged batches, slow readers."""


@dataclass(frozen=True)
class Window:
    """What a window takes."""

    seconds: float
    sent: float
    """Bytes that every rank sends."""
    held: float
    """Bytes of parameters, gradients and optimizer states on every rank."""
    waited: float
    """Of its seconds, those in which the usual rank waits for the slowest."""
    exposed: float
    """Of its seconds, those of communication behind which nothing is computed."""


def window(machine: Machine, job: Job, ranks: int, kind: Kind, sync: Sync) -> Window:
    """Predict one window."""
    contention = machine.contention(ranks)
    computed = job.micro_batches * job.micro_seconds * contention
    reductions = job.micro_batches if sync == "micro-batch" else 1
    weights = job.parameters * job.parameter_bytes
    gradients = job.parameters * job.gradient_bytes
    if kind == "ddp":
        gathers, sent = 0, reductions * moved("all-reduce", gradients, ranks)
    else:
        gathers = 1 if kind == "fsdp-kept" else 2 * job.micro_batches
        sent = gathers * moved("all-gather", weights, ranks)
        sent += reductions * moved("reduce-scatter", gradients, ranks)
    exposed = _exposed(machine, job, ranks, kind, reductions, gathers)
    close = job.close_seconds * contention / (1 if kind == "ddp" else ranks)
    waited = computed * _waiting(job, ranks, kind, sync)
    held = _held(job, ranks, kind, sync)
    return Window(computed + waited + exposed + close, sent, held, waited, exposed)


def _exposed(  # noqa: PLR0917
    machine: Machine, job: Job, ranks: int, kind: Kind, reductions: int, gathers: int
) -> float:
    """Return the seconds of communication that no computation hides."""
    if ranks == 1:
        return 0.0
    size = job.parameters * job.gradient_bytes
    if kind == "ddp":
        # Gradients come in buckets from the end of the model; those of the first layers are last.
        return reductions * _behind(
            machine.seconds("all-reduce", size, ranks),
            machine.seconds("all-reduce", size / job.layers, ranks),
            machine.overlap * _BACKWARD * job.micro_seconds,
        )
    contention = machine.contention(ranks)
    call = machine.shard_call * contention**2  # it takes longer, and has to wait for its turn
    scatter = machine.seconds("reduce-scatter", size / job.layers, ranks) + call
    weights = job.parameters * job.parameter_bytes
    gather = machine.seconds("all-gather", weights / job.layers, ranks) + call
    # The first gather of a pass and the last reduction have nothing to hide behind.
    free = machine.overlap * job.micro_seconds
    backward = _BACKWARD * free
    forwards, backwards = (1, 0) if kind == "fsdp-kept" else (gathers // 2, gathers // 2)
    gathered = forwards * _behind(job.layers * gather, gather, free - backward)
    # Gathers and reductions share the links in a backward; one without the other hides better.
    both = min(reductions, backwards)
    gathered += (backwards - both) * _behind(job.layers * gather, gather, backward)
    together = _behind(job.layers * (gather + scatter), gather + scatter, backward)
    gathered += both * together
    return gathered + (reductions - both) * _behind(job.layers * scatter, scatter, backward)


def _behind(whole: float, part: float, free: float) -> float:
    """Return what is left of a time if all but a part of it can hide behind a free one."""
    return max(whole - free, min(part, whole))


def _waiting(job: Job, ranks: int, kind: Kind, sync: Sync) -> float:
    """Return the time that is waited for the slowest rank, over the time that is computed.

    Whenever ranks exchange something they wait. Between two such times the differences of several
    micro-batches even out.
    """
    if job.variation == 0.0 or ranks == 1:
        return 0.0
    meets = job.micro_batches if kind == "fsdp" or sync == "micro-batch" else 1
    between = job.micro_batches / meets
    return job.variation / math.sqrt(between) * expected_maximum(ranks)


def _held(job: Job, ranks: int, kind: Kind, sync: Sync) -> float:
    """Return the bytes on a rank that stay over a window; those of activations are not counted."""
    if kind == "ddp":
        return job.parameters * (job.state_bytes + job.gradient_bytes)
    held = job.parameters * (job.state_bytes + job.gradient_bytes) / ranks
    if sync == "window" and ranks > 1:
        held += job.parameters * job.gradient_bytes  # of this rank, until they are reduced
    if kind == "fsdp-kept" and ranks > 1:
        held += job.parameters * job.parameter_bytes
    return held
