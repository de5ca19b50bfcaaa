"""The saved state of a stepper: in the middle of a window, too.

It holds what the stepper itself owns: the open window (gradients with their None pattern, declared
losses and counts), the loss scale, the random states and the position in the data. The model, the
optimizer and the scheduler keep their own `state_dict()`s. Everything is plain data and tensors, so
`torch.load(weights_only=True)` reads it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from instep.engine import rng
from instep.engine.feed import Position
from instep.engine.tally import Tally, read
from instep.errors import StateError, WindowError

if TYPE_CHECKING:
    from torch import Tensor

    from instep.engine.lane import Lane
    from instep.engine.loop import Loop

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

    def opens(self, lane: Lane) -> bool:
        """Whether this lane is to be open now; a frame may have closed it and not reopened it."""
        return self.windows[lane.name] is not None or not self.has_open_window

    def restore(self, lane: Lane) -> None:
        """Fill a lane that was just opened with what it had gathered."""
        saved = self.windows[lane.name]
        if saved is None:
            return
        declared = {}
        for term, rows in saved["declared"].items():
            declared[term] = Tally(rows["reference"])
            declared[term].declared = [tuple(row) for row in rows["rows"]]
        parameters = lane.parameters()
        buffers = {
            term: [
                None if g is None else _like(g, p) for g, p in zip(held, parameters, strict=False)
            ]
            for term, held in saved["buffers"].items()
        }
        lane.restore(
            micro_batches=saved["micro_batches"],
            declared=declared,
            buffers=buffers,
            active=saved["active"],
            totals=saved["totals"],
        )


def _like(gradient: Tensor, parameter: Tensor) -> Tensor:
    return gradient.to(parameter.device).clone()


def save(loop: Loop) -> dict[str, Any]:
    """Return the state as plain data; reads the device."""
    window, feed = loop.window, loop.feed
    in_window = window is not None and window.is_open
    if in_window and feed is None and window is not None and window.sizes is not None:
        raise WindowError(
            "state_dict() in a window whose loop was left.",
            why="there is no position to come back to.",
            fix="save inside the loop, or after window.close() or window.discard().",
            more="resume",
        )
    # A batch in hand without work comes again after a resume, so it does not count as taken.
    fresh = int(in_window and feed is not None and feed.in_hand)
    taken = window.taken - fresh if in_window and window is not None else 0
    place = None
    if feed is not None or in_window:
        place = {
            "sizes": None if loop.sizes is None else dict(loop.sizes),
            "taken": taken,
            "position": asdict(feed.position()) if feed is not None else None,
        }
    return {
        "version": VERSION,
        "index": loop.index - int(in_window),
        "scaler": loop.core.scaling.state_dict(),
        "outcomes": loop.core.scaling.outcomes(),
        "random": rng.full_state(),
        "lanes": {
            name: {
                "references": dict(lane.references),
                "window": _save_lane(lane, fresh) if in_window and lane.is_open else None,
            }
            for name, lane in loop.core.lanes.items()
        },
        "place": place,
    }


def _save_lane(lane: Lane, fresh: int) -> dict[str, Any]:
    reading = read(lane.tallies, [])
    return {
        "micro_batches": lane.micro_batches - fresh,
        "totals": None if lane.totals is None else dict(lane.totals),
        "active": lane.active,
        "declared": {
            term: {
                "reference": reading.references[term] if lane.tallies[term].is_begun else None,
                "rows": [tuple(part) for part in parts],
            }
            for term, parts in reading.parts.items()
        },
        "buffers": {
            term: [None if g is None else g.detach().clone() for g in held]
            for term, held in lane.buffers.items()
        },
    }


def load(loop: Loop, state: dict[str, Any]) -> None:
    """Take over a saved state; nothing changes if it does not fit."""
    loop.require_no_window()
    _require_fit(loop, state)
    lanes = loop.core.lanes
    for name, lane in lanes.items():
        lane.references = dict(state["lanes"][name]["references"])
    loop.core.scaling.load_state_dict(state["scaler"], state["outcomes"])
    loop.index = state["index"]
    loop.pending = None
    place = state["place"]
    if place is not None:
        position = place["position"]
        loop.pending = Resume(
            sizes=place["sizes"],
            taken=place["taken"],
            position=None if position is None else Position(**position),
            windows={name: state["lanes"][name]["window"] for name in lanes},
        )
    rng.restore(state["random"])


def _require_fit(loop: Loop, state: dict[str, Any]) -> None:
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
        saved = state["lanes"][name]["window"]
        shapes = [p.shape for p in lane.parameters()]
        for held in saved["buffers"].values() if saved is not None else ():
            if len(held) > len(shapes):
                return f"{name} has {len(shapes)} parameters, the state {len(held)}"
            for index, (gradient, shape) in enumerate(zip(held, shapes, strict=False)):
                if gradient is not None and gradient.shape != shape:
                    found = tuple(gradient.shape)
                    return f"parameter {index} of {name} is {tuple(shape)}, its gradient {found}"
    return None
