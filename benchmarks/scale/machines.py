"""Collectives as latency and bytes: what a message costs, and what a byte does.

A ring over n ranks sends n - 1 messages per rank and pass; a tree sends as many as it is deep. The
slowest link of the way counts. A ring that spans nodes enters and leaves each of them once, and
there are as many rings as a node has ports, so that the bytes of a node are shared by all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Collective = Literal["all-reduce", "all-gather", "reduce-scatter"]


@dataclass(frozen=True)
class Links:
    """What it takes to send: seconds per message, and seconds per byte."""

    message: float
    byte: float


@dataclass(frozen=True)
class Machine:
    """Ranks, and what is between them."""

    name: str
    inside: Links
    """Between ranks of one node."""
    outside: Links
    """Between nodes: of one port, of which a node has as many as ranks."""
    node: int
    """Ranks of one node."""
    copy: float = 0.0
    """Seconds per byte that a rank spends on its own copy of what is exchanged."""
    cores: int | None = None
    """Cores that all ranks of a node share; None: each has a processor of its own."""
    has_trees: bool = True
    """Whether few bytes go over trees; many go over rings all the same."""
    scatters: bool = True
    """Whether there is a reduce-scatter; gloo makes it of an all-reduce of a copy."""
    overlap: float = 0.0
    """Share of a backward in which gradients of layers that are done can travel."""
    shard_call: float = 0.0
    """Seconds that a rank spends around every collective of sharded parameters; times as many as
    take turns on its core, because each of them leaves the caches to the next."""

    def contention(self, ranks: int) -> float:
        """Return how many ranks take turns on a core.

        >>> gloo = Machine("", Links(0, 0), Links(0, 0), node=8, cores=2)
        >>> [gloo.contention(ranks) for ranks in (1, 2, 8)]
        [1.0, 1.0, 4.0]
        """
        if self.cores is None:
            return 1.0
        return max(1.0, min(ranks, self.node) / self.cores)

    def links(self, ranks: int) -> Links:
        """Return what a ring over so many ranks has to do with."""
        if ranks <= self.node:
            return self.inside
        byte = max(self.inside.byte, self.outside.byte / self.node)
        return Links(max(self.inside.message, self.outside.message), byte)

    def alone(self, kind: Collective, size: float, ranks: int) -> float:
        """Return the seconds of one rank for a collective, if no other rank took its core."""
        if ranks == 1:
            return 0.0
        if kind == "reduce-scatter" and not self.scatters:
            return self.alone("all-reduce", size, ranks) + size * self.copy
        links = self.links(ranks)
        passes = 2 if kind == "all-reduce" else 1
        sent = moved(kind, size, ranks) * links.byte + size * self.copy
        ring = passes * (ranks - 1) * links.message + sent
        if not self.has_trees:
            return ring
        nodes = math.ceil(ranks / self.node)
        # Inside of a node a chain, between nodes a tree. A tree sends what a ring does in its
        # pipeline, and never less than all of it once.
        depth = min(ranks, self.node) - 1
        tree = passes * (depth * self.inside.message + _depth(nodes) * self.outside.message)
        return min(ring, tree + passes * size * links.byte + size * self.copy)

    def seconds(self, kind: Collective, size: float, ranks: int) -> float:
        """Return the seconds of a collective of so many bytes, on the wall."""
        return self.alone(kind, size, ranks) * self.contention(ranks)


def moved(kind: Collective, size: float, ranks: int) -> float:
    """Return the bytes that every rank sends.

    >>> moved("all-reduce", 1000, 4), moved("all-gather", 1000, 4), moved("all-gather", 1000, 1)
    (1500.0, 750.0, 0.0)
    """
    passes = 2 if kind == "all-reduce" else 1
    return passes * size * (ranks - 1) / ranks


def _depth(nodes: int) -> int:
    return math.ceil(math.log2(nodes)) if nodes > 1 else 0
