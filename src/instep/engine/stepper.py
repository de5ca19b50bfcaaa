"""`Stepper`: the user's object. It checks the parts, starts loops, and saves where it is."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal

import torch

from instep.engine import saving, setup, state
from instep.engine.auto import AutoStep
from instep.engine.autosave import autosave_of
from instep.engine.batches import batches
from instep.engine.captured import Captures
from instep.engine.core import Core
from instep.engine.flat_buffers import FlatBuffers
from instep.engine.forms import Form
from instep.engine.function import plan_of
from instep.engine.lane import Lane
from instep.engine.loop import Loop
from instep.engine.naming import STEPPER, WINDOWS, told
from instep.engine.precision import Precision
from instep.engine.ranks.padding import refuse_by_hand
from instep.engine.ranks.together import Together
from instep.engine.ranks.world import ranks_of
from instep.engine.recorder import Recorder
from instep.engine.scaling import Scaling
from instep.engine.verify import require_once
from instep.engine.window import Window
from instep.engine.windows import OnExit, Windows
from instep.errors import WindowError
from instep.splits.micro import Micro

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from torch import nn
    from torch.optim import Optimizer

    from instep.checkpoint.background import Writing
    from instep.engine.autosave import Autosave
    from instep.engine.forms import Encode
    from instep.engine.function import Split
    from instep.engine.position import ResumeBy
    from instep.engine.saving import Loaded, PathLike
    from instep.engine.update import Update
    from instep.trace import Trace

    Optimizers = Optimizer | Sequence[Optimizer]


class Stepper:
    """Train in windows: one exact update each, however the work is split.

    model: a module, or a list of them.
    optimizer: one; a list of them, which update together and are clipped by their common norm; or
        a mapping of names to optimizers that have windows of their own.
    scheduler: one or a list; each advances once per update of its own optimizer.
    clip_norm, clip_value: limit the norm of the gradient, or its elements; once, at the close.
    precision: "fp32", "bf16" or "fp16"; the loop body runs under autocast, fp16 scales the loss.
    scaler: your own torch.amp.GradScaler for fp16; otherwise one is made (`stepper.scaler`).
    accumulate_in: the type in which gradients of narrower parameters are summed; None: their own.
    keep_grads: leave `.grad` readable after a window, until the next one opens.
    empty: "skip" a window without items, or "raise".
    fused: update in one kernel on a CUDA device: parameters, gradients and moments become views of
        flat buffers. For AdamW, Adam, SGD and Lion; others keep the portable close, and it says so.
    capture: record the micro-steps of `step` as CUDA graphs, once per shape, and replay them; needs
        fused=True. A number lets so many run side by side, for micro-batches that leave the device
        idle; each takes memory of its own.
    group: the torch.distributed process group that trains together; found from a model that is
        wrapped in DistributedDataParallel or sharded by fully_shard. A plain model is this
        process's own, unless a group is given.
    sync: with fully_shard, add gradients up once per "window", or after each "micro-batch", which
        needs less memory and sends more.
    trace: an `instep.Trace` that every event is recorded into.

    >>> import torch, instep
    >>> model = torch.nn.Linear(2, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> stepper = instep.Stepper(model, optimizer, clip_norm=1.0)
    >>> batches = [torch.ones(3, 2), torch.ones(3, 2), torch.ones(1, 2)]    # ragged
    >>> for window in stepper.windows(batches, size=2):
    ...     for x in window:
    ...         window.backward(model(x).square().mean(), items=len(x))
    ...     print(window.items, window.skipped)
    6.0 None
    1.0 None
    """

    @told("Stepper()", STEPPER)
    def __init__(
        self,
        model: nn.Module | Sequence[nn.Module],
        optimizer: Optimizers | Mapping[str, Optimizers],
        *,
        scheduler: object = None,
        clip_norm: float | Mapping[str, float] | None = None,
        clip_value: float | Mapping[str, float] | None = None,
        precision: Literal["fp32", "bf16", "fp16"] = "fp32",
        scaler: torch.amp.GradScaler | None = None,
        accumulate_in: torch.dtype | None = torch.float32,
        keep_grads: bool = False,
        empty: Literal["skip", "raise"] = "skip",
        fused: bool = False,
        capture: bool | int = False,
        group: object = None,
        sync: Literal["window", "micro-batch"] = "window",
        trace: Trace | None = None,
    ) -> None:
        self.models = setup.models_of(model)
        self.ranks = ranks_of(self.models, group, sync)
        self.optimizers = setup.optimizers_of(optimizer)
        setup.require_same_devices(self.models, self.optimizers)
        self.schedulers = setup.schedulers_of(scheduler, self.optimizers)
        norms = setup.limits_of(clip_norm, "clip_norm", self.optimizers)
        values = setup.limits_of(clip_value, "clip_value", self.optimizers)
        setup.require_options(norms, values, empty=empty, fused=fused, capture=capture)
        setup.require_alone(self.ranks, fused=fused)
        widest = setup.accumulation_of(accumulate_in)
        kinds = [p.device.type for module in self.models for p in module.parameters()]
        region = Precision(precision, kinds)
        if precision == "fp16" and scaler is None:
            scaler = torch.amp.GradScaler(kinds[0] if kinds else "cpu")
        self.scaler = scaler
        scaling = Scaling(scaler)
        self._together = Together.of(self.ranks, self.models)
        lanes = {}
        for name, together in self.optimizers.items():
            alone = len(self.optimizers) == 1
            flat = fused and setup.can_be_flat(self.models, name, together)
            lane = Lane(name, together, scaling, alone=alone, accumulate_in=widest, flat=flat)
            lane.schedulers = self.schedulers[name]
            lane.clip_norm, lane.clip_value = norms[name], values[name]
            lanes[name] = lane
            if isinstance(lane.buffers, FlatBuffers):
                lane.buffers.fuse(self.models)
        if self._together is not None:
            self._together.join(lanes)
        self._captures = Captures(self.models, int(capture)) if capture else None
        if capture:
            on_kernel = (o for lane in lanes.values() if lane.is_flat for o in lane.optimizers)
            setup.warn_if_not_captured(on_kernel)
        recorder = None if trace is None else Recorder(trace)
        self._core = Core(
            lanes, scaling, region, keep_grads, empty == "raise", recorder, self._together
        )
        self._loop = Loop(self._core)
        self._tried: set[Hashable] = set()
        self._desk = saving.Desk()

    @told("stepper.windows()", WINDOWS)
    def windows(
        self,
        loader: Iterable[Any],
        *,
        size: int | Mapping[str, int],
        count: Callable[[Any], object] | None = None,
        on_exit: OnExit = "discard",
        resume: ResumeBy = "count",
    ) -> Windows:
        """Iterate a loader in windows of `size` micro-batches; the last one may be shorter.

        `count(batch)` tells a batch's items ahead of its backward: a number, or one per named term.
        Each window's batches are then drawn ahead, and losses with several denominators need no
        buffer of their own.

        resume: how a saved run finds its place again. "count" draws and drops as many batches;
            "loader" asks a loader with a `state_dict()`, such as torchdata's StatefulDataLoader.
        """
        sizes = setup.sizes_of(size, self.optimizers)
        return Windows(self._loop, loader, sizes=sizes, count=count, on_exit=on_exit, resume=resume)

    def window(self) -> Window:
        """Open one window by hand: `with stepper.window() as window:` updates at its end.

        For work that comes without a loader, such as the patches of one image.
        """
        if self._together is not None and self._together.padding is not None:
            refuse_by_hand()
        self._between_by_hand()
        return self._open_by_hand(tuple(self._core.lanes.values()))

    def batches(self, loader: Iterable[Any], *, resume: ResumeBy = "count") -> Iterator[Any]:
        """Iterate a loader for `step`: its position is then saved, and resumed from, as a window's.

        A batch is done when a step has been made with it.
        """
        return batches(self._loop, loader, resume=resume, models=self.models)

    def epochs(self, count: int) -> Iterator[int]:
        """Count epochs from 0, or from the one in which the loaded run was saved.

        One loop over one loader in each of them. It counts on: `epochs(5)` after `epochs(3)` are
        two more.
        """
        return self._loop.epochs(count)

    def _open_by_hand(self, lanes: Sequence[Lane]) -> Window:
        resumed = self._loop.begin(None)
        return self._loop.open(Window(self._core, lanes, index=self._loop.index), resumed)

    def _between_by_hand(self) -> None:
        run = self._loop.run
        if run is None:
            self._loop.safe_point()
        elif not run.sizes:
            # What was to be done with this batch is done, or begun.
            run.feed.finish()

    def step(
        self,
        batch: Any,
        loss_fn: Callable[..., Any],
        *,
        split: Split = None,
        optimizer: str | None = None,
        encode: Encode | None = None,
        combine: Literal["join", "sum"] = "join",
        batchnorm: Literal["piece", "window", "exact"] | None = None,
        gather: bool = False,
        verify: bool = False,
    ) -> Update:
        """Make one update from a whole batch, in pieces of `split` samples.

        `instep.Micro` cuts in other ways: by tokens, or into the largest pieces that fit ("auto").
        `loss_fn(piece)` returns the mean loss of the piece's samples, or `(loss, items)`, or a
        mapping of named terms to `(loss, items)`.

        encode: for losses that couple the samples. `encode(piece)` returns representations, and
            `loss_fn(representations, batch)` the loss on those of the whole batch. A mapping of
            names to functions gives a mapping of representations.
        combine: "join" the representations of the pieces, or "sum" them.
        batchnorm: normalise by the statistics of the "window", with an "exact" gradient if asked
            for, instead of those of each piece.
        gather: on several ranks, give `loss_fn` the representations of all ranks' samples, in the
            order of the ranks. Its loss is then the same everywhere, and counts once. `batch` stays
            the rank's own: return labels from `encode`, too.
        verify: first try a batch of a new shape whole and split, and refuse if they differ.
        """
        if self._loop.pending is not None and self._loop.pending.has_open_window:
            raise WindowError(
                "a loaded state waits in the middle of a window.",
                why="a step now would mix with its gradients.",
                fix="continue it with stepper.windows(...), or call stepper.discard().",
                more="resume",
            )
        with nullcontext() if self._together is None else self._together.guard():
            form = Form.of(
                loss_fn, encode=encode, combine=combine, batchnorm=batchnorm, gather=gather
            )
            if self._together is not None:
                auto = isinstance(split, Micro) and split.is_auto
                form.require_for_ranks(self.ranks.sync, verify=verify, auto=auto)
            return self._step(batch, form, split, optimizer, verify=verify)

    def _step(
        self, batch: Any, form: Form, split: Split, optimizer: str | None, *, verify: bool
    ) -> Update:
        lane = self._core.lane(optimizer)
        loss_fn = form.loss_fn
        if isinstance(split, Micro) and split.is_auto:
            form.require_pieces_alone()
            fitting = AutoStep(self._loop, lane, self.models, self._open_by_hand, split)
            update = fitting.run(batch, loss_fn, optimizer=optimizer)
            self._between_by_hand()
            return update
        plan = plan_of(batch, split, form.models_on_pieces(self.models))
        if verify:
            require_once(self, batch, form, split, self._tried)
        if self._captures is not None and lane.is_flat and form.is_plain:
            device = lane.optimizers[0].param_groups[0]["params"][0].device
            with (
                self._captures.aside(device),
                self._captures.sparing(lane, plan, loss_fn),
                self._open_by_hand([lane]) as window,
            ):
                plan.try_on(loss_fn)
                self._captures.run(window, lane, plan, loss_fn, name=optimizer)
            self._between_by_hand()
            return window.update
        with self._open_by_hand([lane]) as window:
            form.run(
                window,
                plan,
                batch,
                models=self.models,
                lane=lane,
                optimizer=optimizer,
                together=self._together,
            )
        self._between_by_hand()
        return window.update

    @property
    def is_in_window(self) -> bool:
        """Whether a window is open now."""
        return self._loop.window is not None and self._loop.window.is_open

    def discard(self) -> None:
        """Throw away the open window, or a loaded one that was not continued."""
        self._loop.discard()

    def state_dict(self) -> dict[str, Any]:
        """Return everything the stepper owns, at any point: between windows or inside one.

        Model, optimizer and scheduler are saved beside it, by their own `state_dict()`.
        """
        return state.save(self._loop)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a saved state: the next loop over the same loader goes on where it was.

        Random states are put back, so load it last.
        """
        with self._mended():
            state.load(self._loop, state_dict)

    def save(self, path: PathLike, *, extra: Any = None, wait: bool = True) -> Writing:
        """Save model, optimizers, schedulers, scaler and the stepper itself, also in a window.

        The file appears whole or not at all; the one before is kept as `<path>.previous`. On
        several ranks it is a folder, and all of them call this at the same place.

        extra: your own data, of numbers, strings, lists, dicts and tensors.
        wait: False writes while training goes on, from a copy that is taken before this returns;
            `.wait()` of what it returns waits for the disk.
        """
        with self._desk.turn:
            self._desk.clear()
            return saving.save(self, self._loop, self._desk, path, extra=extra, wait=wait)

    def load(self, path: PathLike, *, previous: bool = False) -> Loaded:
        """Continue from a saved checkpoint: the next loop over the same loader goes on in it.

        A file that is damaged is an error, and nothing is loaded; previous=True takes the one
        before. Model and optimizers are those of this stepper, and are filled in place.
        """
        with self._desk.turn:
            self._desk.clear()
            with self._mended():
                return saving.load(self, self._loop, path, previous=previous)

    def _mended(self) -> AbstractContextManager[None]:
        return nullcontext() if self._together is None else self._together.torn.mended()

    def autosave(
        self,
        path: PathLike,
        *,
        every: int | None = None,
        seconds: float | None = None,
        extra: dict[str, Any] | None = None,
        wait: bool = True,
        signals: Sequence[int] | None = None,
        deadline: float = 30.0,
    ) -> Autosave:
        """Load the checkpoint at `path` if there is one, and save there from now on.

        `with stepper.autosave("run.ckpt", every=100) as run:` saves once more at its end, so that
        a run that is started again after it was done has nothing to do.

        every, seconds: save after so many updates, or so much time, between two windows.
        extra: your own data, saved along and filled from what was loaded (`run.extra`); objects
            with a `state_dict()` in it, such as a ReduceLROnPlateau, are saved and loaded by that.
        wait: False writes while training goes on.
        signals: save and end when one of these comes; SIGTERM unless you say otherwise. It is
            saved at the next micro-batch, then the handler that was there before is called.
        deadline: seconds that a scheduler leaves between such a signal and the end.
        """
        return autosave_of(
            self,
            self._loop,
            path,
            every=every,
            seconds=seconds,
            extra=extra,
            wait=wait,
            signals=signals,
            deadline=deadline,
        )

    def __repr__(self) -> str:
        names = ", ".join(
            f"{name}={'+'.join(type(optimizer).__name__ for optimizer in together)}"
            for name, together in self.optimizers.items()
        )
        return f"Stepper({names}, precision={self._core.precision.name!r})"
