"""The forms a step can take: pieces by themselves, two passes, and BatchNorm over the whole."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from instep.engine.calling import require_one_argument, require_two_arguments
from instep.engine.checks import count_of
from instep.engine.declare import LOSS
from instep.engine.function import read_result, run_pieces
from instep.engine.ranks.padding import padded
from instep.engine.replay import Kept
from instep.engine.statistics import BatchNormMode, Statistics, mode_of
from instep.engine.twopass import SINGLE, TwoPass
from instep.errors import SplitError
from instep.splits.plan import Piece
from instep.splits.tree import rebuild, tensors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from instep.engine.lane import Lane
    from instep.engine.ranks.gathering import Gathered
    from instep.engine.ranks.together import Together
    from instep.engine.window import Window
    from instep.splits.plan import Plan

    Encode = Callable[[Any], Any] | Mapping[str, Callable[[Any], Any]]
    Combine = Literal["join", "sum"]


@dataclass(frozen=True, slots=True)
class Form:
    """What the user's functions are, and how their pieces belong together."""

    loss_fn: Callable[..., Any]
    encoders: Mapping[str, Callable[[Any], Any]] | None
    is_summed: bool
    batchnorm: BatchNormMode
    is_gathered: bool = False
    """Whether the loss looks at the representations of all ranks."""

    @classmethod
    def of(
        cls,
        loss_fn: Callable[..., Any],
        *,
        encode: Encode | None = None,
        combine: Combine = "join",
        batchnorm: str | None = None,
        gather: bool = False,
    ) -> Form:
        """Read the options of a step, or say what is wrong with them."""
        if combine not in ("join", "sum") or (combine == "sum" and encode is None):
            raise SplitError(
                f"combine is {combine!r}{' without encode' if encode is None else ''}.",
                why="what encode returns for the pieces is joined, or added up.",
                fix='pass encode= and combine="sum", or leave combine out.',
                more="two-pass",
            )
        if gather and encode is None:
            raise SplitError(
                "gather=True without encode.",
                why="it is what encode returns that is gathered from all ranks.",
                fix="pass encode=, and write loss_fn(representations, batch).",
                more="two-pass",
            )
        encoders = _encoders_of(encode)
        form = cls(loss_fn, encoders, combine == "sum", mode_of(batchnorm), gather)
        if form.encoders is not None:
            require_two_arguments(loss_fn)
        else:
            require_one_argument(loss_fn)
        return form

    @property
    def is_plain(self) -> bool:
        """Whether every piece is computed by itself."""
        return self.encoders is None and self.batchnorm == "piece"

    def require_pieces_alone(self) -> None:
        """Raise unless every piece is computed by itself: only such pieces can be of any size."""
        if not self.is_plain:
            raise SplitError(
                'Micro("auto") with encode= or batchnorm=.',
                why="it changes the size of pieces on the way, and these look at all pieces of one "
                "cut at once.",
                fix="pass a size: split=32, for example.",
                more="split",
            )

    def require_for_ranks(self, sync: str, *, verify: bool, auto: bool) -> None:
        """Raise for what is exact on one process only, or cannot be done by one rank alone."""
        if sync == "micro-batch" and (auto or self.encoders is not None):
            raise SplitError(
                f"{'an automatic split' if auto else 'encode='} with sync='micro-batch'.",
                why="it runs pieces again, or twice, as many times as one rank needs; but every "
                "forward and backward needs all ranks.",
                fix='pass sync="window" to Stepper.',
                more="ranks",
            )
        if verify or self.batchnorm != "piece":
            raise SplitError(
                "verify=True on several ranks."
                if verify
                else f"batchnorm={self.batchnorm!r} on several ranks.",
                why="it compares with the batch of one rank, which is a part of the window."
                if verify
                else "the statistics would be those of one rank's batch, a part of the window's.",
                fix="verify the split once, in one process."
                if verify
                else "leave it out: each piece is normalised by itself; or use a layer that does "
                "not look at other samples.",
                more="ranks",
            )

    def models_on_pieces(self, models: Sequence[nn.Module]) -> Sequence[nn.Module]:
        """Return the modules that are called on pieces: an encoder, where there is one."""
        encoders = list((self.encoders or {}).values())
        found = [encode for encode in encoders if isinstance(encode, nn.Module)]
        return found or models

    def whole(self, batch: Any) -> Any:
        """Return what the loss function returns for the batch as one piece."""
        if self.encoders is None:
            return self.loss_fn(batch)
        found = {name: encode(batch) for name, encode in self.encoders.items()}
        return self.loss_fn(self._given(found), batch)

    def run(
        self,
        window: Window,
        plan: Plan,
        batch: Any,
        *,
        models: Sequence[nn.Module],
        lane: Lane,
        optimizer: str | None,
        together: Together | None = None,
    ) -> None:
        """Run a batch through an open window; buffers are as before if that is refused."""
        for function in (self.encoders or {SINGLE: self.loss_fn}).values():
            plan.try_on(function)
        if self.is_plain:
            is_padded = together is not None and together.padding is not None
            pieces = padded(plan, together) if together is not None and is_padded else plan
            run_pieces(window, pieces, self.loss_fn, optimizer=optimizer)
        elif len(plan):
            kept = Kept(models)
            try:
                self._run(window, plan, batch, models=models, lane=lane, together=together)
            except BaseException:
                kept.put_back()
                raise
        elif together is not None:
            # Without samples of its own, a rank is still asked for them.
            if self.is_gathered:
                together.gather([], lane, summed=self.is_summed)
            else:
                together.add_counts({})

    def _run(
        self,
        window: Window,
        plan: Plan,
        batch: Any,
        *,
        models: Sequence[nn.Module],
        lane: Lane,
        together: Together | None,
    ) -> None:
        statistics = None
        if self.batchnorm != "piece":
            statistics = Statistics(models, self.batchnorm)
            statistics.measure(self.encoders or {SINGLE: self.loss_fn}, batch)
        if self.encoders is not None:
            _refuse_leaves(batch)
            if self.is_summed and getattr(plan, "is_apart", False):
                _refuse_images_apart()
            passes = TwoPass(
                plan,
                self.encoders,
                models=models,
                parameters=lane.buffers.members,
                statistics=statistics,
                summed=self.is_summed,
            )
            found: Mapping[str, Any] = passes.representations()
            gathered = None
            if together is not None and self.is_gathered:
                found, gathered = self._of_all(found, together, lane)
            result = self.loss_fn(self._given(found), batch)
            counted = passes.items if gathered is None else gathered.items
            loss, items = read_result(result, 1 if counted is None else counted)
            if gathered is not None:
                loss = rebuild(loss, lambda v: gathered.through(v) if _has_graph(v) else v)
            _backward_at_once(window, lane, loss, items, None if self.is_gathered else together)
        elif statistics is not None and statistics.is_exact and statistics.layers:
            passes = TwoPass(
                _PerPiece(plan),
                {SINGLE: lambda piece: _counted(self.loss_fn(piece.value), piece)},
                models=models,
                parameters=lane.buffers.members,
                statistics=statistics,
            )
            loss, items = _means(passes.representations()[SINGLE])
            _backward_at_once(window, lane, loss, items)
        else:
            inside = plan if statistics is None else _Surrounded(plan, statistics)
            run_pieces(window, inside, self.loss_fn, optimizer=lane.name)

    def _of_all(
        self, found: Mapping[str, Any], together: Together, lane: Lane
    ) -> tuple[Mapping[str, Any], Gathered]:
        """Put the representations of all ranks in place of this one's."""
        lane.is_gathered = True
        own = [leaf for tree in found.values() for leaf in tensors(tree)]
        gathered = together.gather(own, lane, summed=self.is_summed)
        whole = iter(gathered.leaves)
        trees = {
            name: rebuild(tree, lambda v: next(whole) if isinstance(v, Tensor) else v)
            for name, tree in found.items()
        }
        return trees, gathered

    def _given(self, found: Mapping[str, Any]) -> Any:
        return found[SINGLE] if list(found) == [SINGLE] else dict(found)


def _has_graph(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def _backward_at_once(
    window: Window, lane: Lane, loss: Any, items: Any, together: Together | None = None
) -> None:
    """Backpropagate all terms together: this is the window's only backward, so its counts are all.

    Reads the counts of several terms from their device; other ranks have counts, too.
    """
    if together is not None:
        terms = items if isinstance(items, Mapping) else {LOSS: items}
        lane.totals = together.add_counts({n: float(count_of(c)) for n, c in terms.items()})
    elif isinstance(items, Mapping):
        lane.totals = {name: float(count_of(count)) for name, count in items.items()}
    elif not isinstance(count := count_of(items), Tensor):
        lane.totals = {LOSS: count}
    means = lane.means
    with contextlib.nullcontext() if means is None else means.returned(is_told=True):
        window.backward(loss, items=items, optimizer=lane.name)


@dataclass(frozen=True, slots=True)
class _Surrounded:
    """A plan whose pieces run with the whole batch's statistics."""

    plan: Plan
    statistics: Statistics

    def __len__(self) -> int:
        return len(self.plan)

    def try_on(self, function: Callable[[Any], Any]) -> None:
        """Try it as the plan does."""
        self.plan.try_on(function)

    def __iter__(self) -> Iterator[Piece]:
        for piece in self.plan:
            yield replace(piece, around=self._around(piece), likeness=None)

    def _around(self, piece: Piece) -> Callable[[], contextlib.AbstractContextManager[None]]:
        @contextlib.contextmanager
        def around() -> Iterator[None]:
            with piece.around(), self.statistics.used(SINGLE):
                yield

        return around

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """Put parts together as the plan does."""
        return self.plan.join(parts)

    def part(self, whole: Tensor, index: int) -> Tensor:
        """Take a part out as the plan does."""
        return self.plan.part(whole, index)


@dataclass(frozen=True, slots=True)
class _PerPiece:
    """A plan of the same pieces, from each of which comes one row: its losses."""

    plan: Plan

    def __len__(self) -> int:
        return len(self.plan)

    def try_on(self, function: Callable[[Any], Any]) -> None:
        """Try it as the plan does."""
        self.plan.try_on(function)

    def __iter__(self) -> Iterator[Piece]:
        for piece in self.plan:
            yield Piece(piece, piece.items, piece.around, piece.likeness)

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """Return the rows below each other."""
        return torch.cat(list(parts))

    def part(self, whole: Tensor, index: int) -> Tensor:
        """Return one row."""
        return whole[index : index + 1]


def _counted(result: Any, piece: Piece) -> dict[str, tuple[Tensor, Tensor]]:
    """Return each term's loss and count as rows of one element."""
    loss, items = read_result(result, piece.items, piece.refused)
    losses = loss if isinstance(loss, Mapping) else {SINGLE: loss}
    counts = items if isinstance(items, Mapping) else {SINGLE: items}
    rows = {}
    for name, term in losses.items():
        count = float(count_of(counts[name]))
        # Without items the mean is 0/0, which would reach everything by its gradient.
        row = term.reshape(1) if count else torch.zeros(1, dtype=term.dtype, device=term.device)
        rows[name] = row, torch.tensor([count], dtype=torch.float64)
    return rows


def _means(rows: Mapping[str, tuple[Tensor, Tensor]]) -> tuple[Any, Any]:
    """Return the mean loss and the count of each term over all pieces."""
    losses, items = {}, {}
    for name, (found, counts) in rows.items():
        items[name] = float(counts.sum())
        losses[name] = (found * (counts / (items[name] or 1.0)).to(found)).sum()
    if list(rows) == [SINGLE]:
        return losses[SINGLE], items[SINGLE]
    return losses, items


def _encoders_of(encode: Any) -> Mapping[str, Callable[[Any], Any]] | None:
    if encode is None:
        return None
    encoders = dict(encode) if isinstance(encode, Mapping) else {SINGLE: encode}
    if not encoders or not all(map(callable, encoders.values())):
        raise SplitError(
            f"encode is {encode!r}.",
            why="it is called on every piece.",
            fix="pass a function of a piece, or a mapping of names to such functions.",
            more="two-pass",
        )
    return encoders


def _refuse_images_apart() -> None:
    raise SplitError(
        'combine="sum" over patches of different images.',
        why="images are cut apart from each other (images=), and the sum over all pieces would add "
        "what belongs to one image to what belongs to another.",
        fix="leave images= out of Patches, so that each piece holds all images; or leave combine "
        "out and sum in loss_fn.",
        more="two-pass",
    )


def _refuse_leaves(batch: Any) -> None:
    if any(tensor.requires_grad for tensor in tensors(batch)):
        raise SplitError(
            "a tensor of the batch requires a gradient.",
            why="two passes give gradients to parameters; that of the batch would be missing.",
            fix="detach it, or compute it inside encode.",
            more="two-pass",
        )
