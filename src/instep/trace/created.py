"""The event that brings facts: what is known about the things that other events name."""

from collections.abc import Mapping
from typing import ClassVar, Literal, TypeAlias

from instep.trace.base import Event
from instep.trace.plain import dataclass, field

Role: TypeAlias = Literal["optimizer", "scaler", "scheduler", "model", "loader", "loss", "job"]
Fact: TypeAlias = bool | int | float | str | tuple["Fact", ...] | None


@dataclass(frozen=True, slots=True)
class Created(Event):
    """Something that later events name by its id came to be, with what is known about it.

    Facts by role, each left out where it is not known:
    optimizer  type, models, parameters (names), groups (their number), lr, written (its
               constructor is in the source)
    scaler     type, enabled, scale
    scheduler  type, optimizer, unit, horizon (what its length counts: "updates" or "batches"),
               skippable (its first value may be zero, or the same as the others)
    model      type, parameters (names), frozen (names), batchnorm, distributed ("ddp", "fsdp"),
               written, trainable (it has parameters), held (by any optimizer), part_of,
               loaded (from a file)
    loader     type, length (batches), batch_items, drop_last, pieces (of a batch), patches,
               shard (of a file, perhaps, rather than of a batch), bounded (where its epoch
               ends is not known), length_written (where: `Written`)
    loss       type, reduction, unit ("samples", "tokens", "pixels"), ragged (the number of items
               differs between batches; "declared": it may), coupled (an item's loss depends on
               the other items), window (it is given to a window of instep's), again (the number of
               micro-batches that it was divided by all the same)
    job        source ("check", "watch", "engine"), running (there is more to come), rank, ranks,
               managed (by which framework), partial (a part of somebody else's loop), torch (the
               version that the project says it is for: major, minor)
    """

    kind: ClassVar[str] = "created"

    id: str
    role: Role
    facts: Mapping[str, Fact] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        # The caller's dict may change later, and lists would come back from JSON as tuples.
        facts = {name: _plain(fact) for name, fact in self.facts.items()}
        object.__setattr__(self, "facts", facts)

    def touches(self) -> tuple[str, ...] | None:
        """Return the optimizer, if it is one that was created."""
        return (self.id,) if self.role == "optimizer" else None


def _plain(fact: object) -> Fact:
    if fact is None or isinstance(fact, bool | int | float | str):
        return fact
    if isinstance(fact, list | tuple):
        return tuple(_plain(part) for part in fact)
    raise TypeError(f"a fact is a scalar or a sequence of facts, not {type(fact).__name__}.")
