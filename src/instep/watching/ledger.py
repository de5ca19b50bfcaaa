"""`instep.ledger`: what is in `.grad` right now, and how it came there."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, overload

import torch
from torch import Tensor

from instep.errors import WatchError
from instep.reports.escape import visible
from instep.trace import Backward, Step, Unscale, Zero
from instep.watching import running
from instep.watching.quoting import Quoting
from instep.watching.spelling import spelled

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from instep.trace import Place
    from instep.watching.job import Job

_HEADS = ("parameter", "leaf", "optimizer", "gradient", "backwards", "dtype", "device")
_NO_WATCH = "unknown: no watch"
_NO_OPTIMIZER = "unknown: none named"
_MOST_LINES = 3
"""Of the lines that one parameter's gradient came from, in the table."""


@dataclass(frozen=True, slots=True)
class Row:
    """One parameter, and what is in its gradient."""

    name: str
    is_leaf: bool
    optimizers: tuple[str, ...]
    """Those that hold it; none: nothing will ever use its gradient."""
    norm: float | None
    """Of the gradient; None: there is no gradient."""
    backwards: int | None
    """How many have been added since it was cleared; None: not watched, so not known."""
    lines: tuple[tuple[Place | None, int], ...]
    """Where they were called, and how often, the most frequent first."""
    dtype: torch.dtype
    """Of the gradient, or of the parameter where there is none."""
    device: torch.device
    is_scaled: bool = False
    """A scaler has multiplied the loss, and nothing has unscaled the gradient yet."""

    @property
    def gradient(self) -> str:
        """What is in `.grad`, in a word or a number."""
        if self.norm is None:
            return "None"
        if self.norm == 0:
            return "zeros"
        return f"{self.norm:.3g}{' (scaled)' if self.is_scaled else ''}"


class Ledger(Sequence[Row]):
    """Rows, one for each parameter; printed, it is a table."""

    def __init__(
        self, rows: Iterable[Row], *, is_watched: bool, has_optimizers: bool, quoting: Quoting
    ) -> None:
        self.rows = tuple(rows)
        self.is_watched = is_watched
        self._nobody = "none" if has_optimizers else _NO_OPTIMIZER
        self._quoting = quoting

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Row, ...]: ...
    def __getitem__(self, index: int | slice) -> Row | tuple[Row, ...]:
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        table = [_HEADS, *(self._cells(row) for row in self.rows)]
        widths = [max(len(cells[at]) for cells in table) for at in range(len(_HEADS))]
        lines = [
            "  ".join(
                f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)
            ).rstrip()
            for cells in table
        ]
        if any(row.is_scaled for row in self.rows):
            lines.append("(scaled): the norm still contains the loss scale; unscale_ takes it out.")
        return "\n".join(lines)

    __repr__ = __str__  # a debugger shows this one

    def _cells(self, row: Row) -> tuple[str, ...]:
        return (
            visible(row.name),
            "yes" if row.is_leaf else "no",
            visible(", ".join(row.optimizers)) or self._nobody,
            row.gradient,
            self._backwards(row),
            str(row.dtype).removeprefix("torch."),
            str(row.device),
        )

    def _backwards(self, row: Row) -> str:
        if row.backwards is None:
            return "not seen" if self.is_watched else _NO_WATCH
        said = [
            f"{self._quoting.near(place)}" + (f" ×{count}" if count > 1 else "")
            for place, count in row.lines[:_MOST_LINES]
            if place is not None
        ]
        rest = len(row.lines) - _MOST_LINES
        more = [f"{rest} more"] if rest > 0 else []
        return f"{row.backwards}: {visible(', '.join(said + more))}" if said else str(row.backwards)


def ledger(*things: Any) -> Ledger:
    """Return what is in `.grad` right now, for the parameters of models and optimizers.

    With nothing named: for all parameters that the running watch knows. How many backwards have
    been added since a gradient was cleared, and by which lines, is known while a watch is on.
    Norms are computed when it is called, so it waits for the device.

    >>> import torch
    >>> model = torch.nn.Linear(2, 1)
    >>> optimizer = torch.optim.SGD([model.weight], lr=0.1)
    >>> model(torch.ones(1, 2)).sum().backward()
    >>> print(ledger(model, optimizer))
    parameter  leaf  optimizer  gradient  backwards          dtype    device
    weight     yes   optimizer  1.41      unknown: no watch  float32  cpu
    bias       yes   none       1         unknown: no watch  float32  cpu
    """
    job = running.newest()
    if not things and job is None:
        raise WatchError(
            "there is nothing to list.",
            why="no watch is on, and neither a model nor an optimizer was named.",
            fix="say instep.ledger(model, optimizer), or call it inside of `with instep.watch():`.",
            more="watching",
        )
    names = _named(things, job) if things else _known(job)
    holders = _holders(things, job)
    added, scaled = _added(job), _scaled(job)
    is_watched = job is not None
    rows = [
        _row(name, each, holders.get(id(each), ()), added, is_watched=is_watched)
        for name, each in names
    ]
    rows = [replace(row, is_scaled=not scaled.isdisjoint(row.optimizers)) for row in rows]
    quoting = Quoting() if job is None else job.quoting
    named = any(isinstance(thing, torch.optim.Optimizer) for thing in things)
    return Ledger(rows, is_watched=is_watched, has_optimizers=is_watched or named, quoting=quoting)


def _named(things: tuple[Any, ...], job: Job | None) -> list[tuple[str, Tensor]]:
    """Return the parameters of what was named, each once."""
    models = [thing for thing in things if isinstance(thing, torch.nn.Module)]
    found: dict[int, tuple[str, Tensor]] = {}
    for model in models:
        start = "" if len(models) == 1 else f"{spelled(model, ()) or type(model).__name__.lower()}."
        for path, own in model.named_parameters():
            found.setdefault(id(own), (start + path, own))
    for thing in things:
        if isinstance(thing, torch.optim.Optimizer):
            for number, parameter in enumerate(_of(thing)):
                found.setdefault(id(parameter), (_name(parameter, number, job), parameter))
        elif isinstance(thing, Tensor):
            found.setdefault(id(thing), (spelled(thing, ()) or "tensor", thing))
        elif not isinstance(thing, torch.nn.Module):
            raise WatchError(
                f"{type(thing).__name__} has no gradients to list.",
                why="a ledger is about the parameters of models and optimizers.",
                fix="pass models, optimizers or single parameters.",
                more="watching",
            )
    return list(found.values())


def _name(parameter: Tensor, number: int, job: Job | None) -> str:
    held = None if job is None else job.book.parameters.get(id(parameter))
    return f"parameter {number}" if held is None else held.name


def _known(job: Job | None) -> list[tuple[str, Tensor]]:
    """Return every parameter that a watch is about, by its full name."""
    found: list[tuple[str, Tensor]] = []
    for held in () if job is None else list(job.book.parameters.values()):
        parameter = held.parameter
        if parameter is not None and job is not None and not job.book.is_others(held):
            name = held.name if held.model is None else f"{held.model}.{held.name}"
            found.append((name, parameter))
    return found


def _holders(things: tuple[Any, ...], job: Job | None) -> dict[int, tuple[str, ...]]:
    """Return the names of the optimizers that hold each parameter."""
    optimizers = {id(each): each for each in things if isinstance(each, torch.optim.Optimizer)}
    if job is not None:
        alive = (made.weak() for made in job.book.optimizers.values())
        optimizers.update({id(each): each for each in alive if each is not None})
    found: dict[int, list[str]] = defaultdict(list)
    for optimizer in optimizers.values():
        if job is not None and job.book.knows(optimizer):
            name = job.book.optimizer_name(optimizer)
        else:
            name = spelled(optimizer, ()) or type(optimizer).__name__.lower()
        for parameter in _of(optimizer):
            found[id(parameter)].append(name)
    return {key: tuple(names) for key, names in found.items()}


def _of(optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


_Added = dict[tuple[int, str], Counter["Place | None"]]
"""Backwards by line, for each parameter and optimizer."""


def _added(job: Job | None) -> _Added:
    found: _Added = defaultdict(Counter)
    for owner, backwards in () if job is None else list(job.recorder.since.items()):
        for way, count in list(backwards.items()):
            for key in way.keys:
                found[key, owner][way.place] += count
    return found


def _scaled(job: Job | None) -> set[str]:
    """Return the optimizers whose gradients still contain the loss scale."""
    found: set[str] = set()
    for event in () if job is None else (*job.trace, *job.stream.open):
        match event:
            case Backward(scaled=True):
                found.update(event.optimizers or ())
            case Zero() if event.complete:
                found.difference_update(event.optimizers or ())
            case Unscale() | Step() if event.optimizer is not None:
                found.discard(event.optimizer)  # a scaler's step has unscaled them
    return found


def _row(
    name: str, parameter: Tensor, optimizers: tuple[str, ...], added: _Added, *, is_watched: bool
) -> Row:
    # `.grad` of what is no leaf warns, unless it was asked to be kept.
    has = parameter.is_leaf or parameter.retains_grad
    gradient = parameter.grad if has else None
    norm = None if gradient is None else _norm(gradient)
    counts = [added.get((id(parameter), owner), Counter()) for owner in (*optimizers, "")]
    most = max(counts, key=Counter.total)  # one backward counts for each optimizer that it touches
    backwards: int | None = most.total()
    if gradient is None:
        backwards = 0 if is_watched else None
    elif not backwards and not (is_watched and norm == 0):
        backwards = None  # what is in it came from nowhere that was watched
    return Row(
        name=name,
        is_leaf=parameter.is_leaf,
        optimizers=optimizers,
        norm=norm,
        backwards=backwards,
        lines=tuple(most.most_common()) if backwards else (),
        dtype=parameter.dtype if gradient is None else gradient.dtype,
        device=parameter.device,
    )


def _norm(gradient: Tensor) -> float:
    values = gradient.detach()
    if values.is_sparse:
        values = values.coalesce().values()
    wide = values if values.is_complex() else values.double() if values.is_cpu else values.float()
    return float(torch.linalg.vector_norm(wide))
