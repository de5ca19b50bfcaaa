"""What nobody has measured here: a cluster of GPUs, how uneven its work is, how often it fails.

Every number is an option of the command. The links are the nominal ones of H200 servers with a
400 Gb/s port per GPU, at four fifths; the times of a message and the overlap are guesses. A failure
of a rank once in 50,000 hours is that of a published run (419 unexpected interruptions of 16,384
GPUs in 54 days: The Llama 3 Herd of Models, 2024).
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.scale.failures import Plant
from benchmarks.scale.gpu import LAYERS, MICRO_BATCHES, PARAMETERS, Gpu
from benchmarks.scale.machines import Links, Machine
from benchmarks.scale.windows import Job

RANKS = (1, 2, 4, 8, 16, 64, 256, 1024, 4096, 16384)


@dataclass(frozen=True)
class Assumed:
    """The options of the command, with what they are unless somebody says otherwise."""

    tokens: int = 2048
    """Per micro-batch and rank."""
    node: int = 8
    """Ranks in a node."""
    inside: float = 360.0
    """GB/s between ranks of a node."""
    network: float = 40.0
    """GB/s of a port to other nodes; every rank has one."""
    inside_message: float = 5.0
    """Microseconds of a message inside of a node."""
    network_message: float = 15.0
    """Microseconds of a message between nodes."""
    overlap: float = 0.8
    """Share of a backward behind which communication hides."""
    variation: float = 0.1
    """Standard deviation of a micro-batch's time over its mean."""
    mtbf: float = 50_000.0
    """Hours between two failures of one rank."""
    checkpoint: float = 30.0
    """Seconds that the job stands still for a checkpoint."""
    restart: float = 300.0
    """Seconds from a failure until the job goes on."""

    def machine(self) -> Machine:
        """Return the cluster."""
        return Machine(
            "cluster",
            inside=Links(self.inside_message * 1e-6, 1e-9 / self.inside),
            outside=Links(self.network_message * 1e-6, 1e-9 / self.network),
            node=self.node,
            overlap=self.overlap,
        )

    def job(self, gpu: Gpu, *, variation: float = 0.0) -> Job:
        """Return the GPT of the benchmark on every rank."""
        return Job(
            PARAMETERS,
            MICRO_BATCHES,
            gpu.micro(self.tokens),
            gpu.close,
            layers=LAYERS,
            parameter_bytes=2,  # gathered in bf16, reduced in fp32
            variation=variation,
        )

    def plant(self, ranks: int, *, mtbf: float | None = None) -> Plant:
        """Return the job as something that fails."""
        hours = self.mtbf if mtbf is None else mtbf
        return Plant(ranks, hours * 3600, self.checkpoint, self.restart)
