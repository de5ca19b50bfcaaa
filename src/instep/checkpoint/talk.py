"""What ranks say to each other about a checkpoint: a name, and whether it went well."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Protocol

from instep.checkpoint.envelope import EnvelopeError
from instep.errors import CheckpointError, InstepError, said_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Waiting = Callable[[str], contextlib.AbstractContextManager[None]]


class Ranks(Protocol):
    """Who saves together; the engine's own object, as far as it is needed here."""

    @property
    def rank(self) -> int:
        """The number of this process."""

    @property
    def world(self) -> int:
        """How many there are."""

    @property
    def group(self) -> Any:
        """The torch.distributed process group; None for a process by itself."""


class Round:
    """What ranks say to each other when they have done something together."""

    def __init__(self) -> None:
        self.says: Any = None
        self.heard: list[Any] = []
        """What each of them has said; known when all is done."""


class Talk:
    """The collectives of one save or load; a process by itself has nobody to wait for."""

    def __init__(
        self,
        ranks: Ranks,
        group: Any = None,
        waiting: Waiting | None = None,
        mark: Callable[[BaseException], None] | None = None,
    ) -> None:
        self.rank, self.world = ranks.rank, ranks.world
        self.group = ranks.group if group is None else group
        self.waiting: Waiting = waiting or _nobody
        """Turns the error of a collective into one that says who did not come."""
        self.mark = mark or _unmarked
        """Notes that all ranks raise an error, in the same place: nobody has to be told then."""

    @property
    def is_alone(self) -> bool:
        """Whether nobody else takes part."""
        return self.group is None

    def gather(self, mine: Any) -> list[Any]:
        """Return what every rank says, in their order."""
        if self.is_alone:
            return [mine]
        import torch.distributed as dist  # noqa: PLC0415 -- in use already

        said: list[Any] = [None] * self.world
        with self.waiting("the checkpoint"):
            dist.all_gather_object(said, mine, group=self.group)
        return said

    @contextlib.contextmanager
    def together(self, what: str) -> Iterator[Round]:
        """Do something on every rank; if it failed on one, raise on all of them.

        An error of instep's own is the same one everywhere; of others, the first line. What a rank
        has to say beside that travels along.
        """
        error: Exception | None = None
        about = Round()
        try:
            yield about
        except Exception as raised:  # noqa: BLE001 -- the others must hear of it, whatever it is
            error = raised
        told = None if error is None else _told(error)
        heard = self.gather((told, about.says))
        said = [each for each, _ in heard]
        failed = [rank for rank, each in enumerate(said) if each is not None]
        if not failed:
            about.heard = [each for _, each in heard]
            return
        if error is not None:
            self.mark(error)
            raise error
        shared = _of_others(what, {rank: said[rank] for rank in failed})
        self.mark(shared)
        raise shared


def elsewhere(what: str, errors: Mapping[int, BaseException]) -> CheckpointError:
    """Return what a rank raises for what others have raised, by their numbers."""
    return _of_others(what, {rank: _told(error) for rank, error in errors.items()})


def _of_others(what: str, said: Mapping[int, dict[str, Any]]) -> CheckpointError:
    first = next(iter(said.values()))
    shared = CheckpointError(
        f"{what} failed on {_ranks(list(said))}: {first['what']}",
        why=first["why"],
        fix=first["fix"],
        more=first["more"],
    )
    shared.__cause__ = _cause(first)
    return shared


def _nobody(_what: str) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


def _unmarked(_error: BaseException) -> None:
    return None


def _cause(told: dict[str, Any]) -> Exception | None:
    """Return what is behind an error, as far as decisions depend on it: the same on all ranks."""
    if told.get("kind"):
        return EnvelopeError(told["kind"], told["what"])
    return OSError(told["errno"], told["what"]) if told.get("errno") else None


def _told(error: BaseException) -> dict[str, Any]:
    kind = error.kind if isinstance(error, EnvelopeError) else None
    if isinstance(error, InstepError):
        cause = error.__cause__
        return {
            "what": error.what,
            "why": error.why,
            "fix": error.fix,
            "more": error.more,
            "kind": cause.kind if isinstance(cause, EnvelopeError) else None,
            "errno": cause.errno if isinstance(cause, OSError) else None,
        }
    return {
        "what": said_of(error),
        "why": "all ranks save and load together, or none of them does.",
        "fix": "look at the output of that rank.",
        "more": "checkpoint",
        "kind": kind,
    }


def _ranks(numbers: list[int]) -> str:
    return f"rank{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
