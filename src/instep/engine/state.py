"""The saved state of a stepper: in the middle of a window, too.

It holds what the stepper itself owns: the open window (gradients with their None pattern, declared
losses and counts), the loss scale, the random states and the position in the data. The model, the
optimizer and the scheduler keep their own `state_dict()`s. Everything is plain data and tensors, so
`torch.load(weights_only=True)` reads it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from instep.engine import gradients as grads
from instep.engine import rng
from instep.engine.dealt import Known
from instep.engine.position import Position
from instep.engine.seeding import Anew, Seeding
from instep.engine.tally import Tally, read
from instep.errors import StateError, WindowError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from instep.engine.buffers import Gradients
    from instep.engine.lane import Lane
    from instep.engine.loop import Loop
    from instep.engine.window import Window

VERSION = 1


@dataclass(frozen=True, slots=True)
class Resume:
    """A saved place inside a loop or a window, until the next loop takes it up."""

    sizes: dict[str, int] | None
    taken: int
    position: Position | None
    windows: dict[str, dict[str, Any] | None]

    @property
    def has_open_window(self) -> bool:
        """Whether a window was open when the state was saved."""
        return any(saved is not None for saved in self.windows.values())

    def place(self) -> dict[str, Any]:
        """Return the place as it was saved."""
        position = None if self.position is None else asdict(self.position)
        return {"sizes": self.sizes, "taken": self.taken, "position": position}

    def opens(self, lane: Lane) -> bool:
        """Whether this lane is to be open now; a frame may have closed it and not reopened it."""
        return self.windows[lane.name] is not None or not self.has_open_window

    def restore(self, lane: Lane) -> None:
        """Fill a lane that was just opened with what it had gathered."""
        saved = self.windows[lane.name]
        if saved is None:
            return
        tallies = {}
        for term, rows in saved["declared"].items():
            known = rows["reference"]
            tallies[term] = Tally(known, is_fixed=known is not None)
            for loss, items, weight, is_sum in rows["rows"]:
                tallies[term].declare(loss, items, weight, is_sum=is_sum)
        members = lane.buffers.members
        buffers: dict[str, Gradients] = {
            term: [None if g is None else _like(g, p) for g, p in zip(held, members, strict=False)]
            for term, held in saved["buffers"].items()
        }
        lane.micro_batches = saved["micro_batches"]
        lane.tallies = tallies
        lane.totals = saved["totals"]
        lane.buffers.restore(buffers, saved["active"])


def _like(gradient: Tensor, parameter: Tensor) -> Tensor:
    return gradient.to(parameter.device).clone()


def save(loop: Loop) -> dict[str, Any]:
    """Return the state as plain data; reads the device."""
    loop.core.conclude_all()
    window, run = loop.window, loop.run
    open_window = window if window is not None and window.is_open else None
    require_resumable(loop)
    if open_window is not None and open_window.is_complete and not _any_open(loop):
        # Every optimizer was closed by hand in the last micro-batch: there is nothing to continue.
        open_window = None
    feed = None if run is None else run.feed
    # A batch in hand without work comes again after a resume, so it does not count as taken.
    fresh = int(open_window is not None and feed is not None and feed.in_hand)
    place = None
    waiting = None if run is not None else loop.pending
    if waiting is not None:
        # Loaded and not taken up yet: it is still the place to come back to.
        place = waiting.place()
    elif run is not None or open_window is not None:
        place = {
            "sizes": None if run is None else dict(run.sizes),
            "taken": 0 if open_window is None else open_window.taken - fresh,
            "position": None if feed is None else asdict(feed.position()),
        }
    return {
        "version": VERSION,
        "index": loop.index - int(open_window is not None),
        "epoch": loop.epoch_to_save(),
        "scaler": loop.core.scaling.state_dict(),
        "outcomes": loop.core.scaling.outcomes(),
        "random": rng.full_state(),
        "generators": loop.generators_to_save(),
        "left_workers": loop.left_workers,
        "seeded_anew": loop.seeds.are_new,
        "dealt_anew": loop.anew.is_anew,
        "lanes": {
            name: {
                "references": dict(lane.references),
                "window": _window_of(lane, fresh, waiting),
            }
            for name, lane in loop.core.lanes.items()
        },
        "place": place,
        "fitting": loop.core.sizes.state_dict(),
    }


def _window_of(lane: Lane, fresh: int, waiting: Resume | None) -> dict[str, Any] | None:
    if lane.is_open:
        return _save_lane(lane, fresh)
    return None if waiting is None else waiting.windows[lane.name]


def _any_open(loop: Loop) -> bool:
    return any(lane.is_open for lane in loop.core.lanes.values())


def why_not_resumable(loop: Loop) -> str | None:
    """Say why a resumed run could not do what this one will do; None where it can."""
    window = loop.window if loop.window is not None and loop.window.is_open else None
    if is_in_backward(loop):
        return (
            "a backward is running, and this was called by one of its hooks: some gradients of "
            "its micro-batch are added, others are not, and its loss is not counted yet."
        )
    if any(lane.is_closing for lane in loop.core.lanes.values()):
        return "a window is closing: its update may have happened already, or not."
    if window is not None and (why := _why_not_in(window, loop)) is not None:
        return why
    if loop.run is not None and loop.run.outer is not None:
        return "one loop over a loader runs inside another, and only one can be come back to."
    return None


def _why_not_in(window: Window, loop: Loop) -> str | None:
    if window.is_left:
        return "the inner loop was left, and what becomes of its window is not decided yet."
    if window.sizes is None and loop.run is not None:
        return "a window is open by hand inside a loop over a loader, or a step() is running."
    if loop.run is None and loop.pending is not None:
        return "a window is open by hand, and a loaded place waits for its loop."
    return None


def is_in_backward(loop: Loop) -> bool:
    """Whether a micro-batch is half done."""
    return any(lane.is_in_backward for lane in loop.core.lanes.values())


def require_resumable(loop: Loop) -> None:
    """Raise where there is no place to come back to."""
    why = why_not_resumable(loop)
    if why is not None:
        raise WindowError(
            "state_dict() cannot be resumed from here.",
            why=why,
            fix="save in the loop body, between windows, or after window.close() or "
            "window.discard(); a hook may note that it is time to.",
            more="resume",
        )


def _save_lane(lane: Lane, fresh: int) -> dict[str, Any]:
    reading = read(lane.tallies, [])
    return {
        "micro_batches": lane.micro_batches - fresh,
        "totals": None if lane.totals is None else dict(lane.totals),
        "active": lane.buffers.active,
        "declared": {
            term: {
                "reference": reading.references[term] if lane.tallies[term].is_begun else None,
                "rows": [tuple(part) for part in parts],
            }
            for term, parts in reading.parts.items()
        },
        "buffers": {
            term: [None if g is None else g.detach().clone() for g in held]
            for term, held in lane.buffers.by_term().items()
        },
    }


def load(loop: Loop, state: dict[str, Any]) -> None:
    """Take over a saved state; nothing changes if it does not fit."""
    require_loadable(loop, state)
    lanes = loop.core.lanes
    for name, lane in lanes.items():
        lane.references = dict(state["lanes"][name]["references"])
    loop.core.scaling.load_state_dict(state["scaler"], state["outcomes"])
    # States from before there were any have none.
    loop.core.sizes.load_state_dict(state.get("fitting", []))
    loop.index = state["index"]
    loop.epoch = state.get("epoch", 0)
    loop.is_epoch_over = False
    loop.pending = None
    place = state["place"]
    loop.generators = state.get("generators", {})
    loop.left = {}
    loop.left_workers = state.get("left_workers", False)
    loop.seeds = Seeding(are_new=state.get("seeded_anew", False))
    loop.anew = Anew(is_anew=state.get("dealt_anew", False))
    loop.known = Known()
    loop.are_loaded = place is None
    if place is not None:
        position = place["position"]
        loop.pending = Resume(
            sizes=place["sizes"],
            taken=place["taken"],
            position=None if position is None else Position(**position),
            windows={name: state["lanes"][name]["window"] for name in lanes},
        )
    rng.restore(state["random"])


def require_loadable(loop: Loop, state: dict[str, Any]) -> None:
    """Raise if a state cannot be taken over, here and now."""
    loop.require_no_window("load_state_dict() was called")
    problem = _misfit(loop, state)
    if problem is not None:
        raise StateError(
            f"this state does not fit this stepper: {problem}.",
            why="it was saved by another version, or with other optimizers or parameters.",
            fix="build the model, optimizers and Stepper as they were when it was saved.",
            more="resume",
        )


def _misfit(loop: Loop, state: dict[str, Any]) -> str | None:
    if not isinstance(state, dict) or not {"version", "lanes", "place", "random"} <= state.keys():
        return "it is no stepper state"
    if state["version"] != VERSION:
        return f"it has version {state['version']}, this is {VERSION}"
    if state["lanes"].keys() != loop.core.lanes.keys():
        return f"it has optimizers {sorted(state['lanes'])}, this has {sorted(loop.core.lanes)}"
    for name, lane in loop.core.lanes.items():
        if not {"references", "window"} <= state["lanes"][name].keys():
            return "it is no stepper state"
        saved = state["lanes"][name]["window"]
        parameters = grads.parameters_of(lane.optimizers)
        for held in saved["buffers"].values() if saved is not None else ():
            problem = _gradients_misfit(held, parameters, lane.accumulate_in)
            if problem is not None:
                return f"{problem}, of {name}"
    return None


def _gradients_misfit(
    held: Gradients, parameters: list[Tensor], accumulate_in: torch.dtype | None
) -> str | None:
    if len(held) > len(parameters):
        return f"it has {len(held)} gradients, for {len(parameters)} parameters"
    for index, (gradient, parameter) in enumerate(zip(held, parameters, strict=False)):
        if gradient is None:
            continue
        if gradient.shape != parameter.shape:
            shapes = f"{tuple(parameter.shape)}, its gradient {tuple(gradient.shape)}"
            return f"parameter {index} is {shapes}"
        if gradient.dtype not in (parameter.dtype, accumulate_in):
            return f"parameter {index} is {parameter.dtype}, its gradient {gradient.dtype}"
    return None
