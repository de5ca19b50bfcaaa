"""The states of a window and the calls each allows: one table, for checks and for errors."""

from __future__ import annotations

from enum import Enum

from instep.errors import WindowError


class State(Enum):
    """Where a window is in its life."""

    OPEN = "open"
    LEFT = "left early"
    CLOSED = "closed"
    DISCARDED = "discarded"


RESULTS = ("loss", "losses", "items", "grad_norm", "skipped", "update")

ALLOWED: dict[State, frozenset[str]] = {
    State.OPEN: frozenset({"iterate", "backward", "due", "close", "discard", "updates"}),
    State.LEFT: frozenset({"backward", "close", "discard", "updates"}),
    State.CLOSED: frozenset({"updates", *RESULTS}),
    State.DISCARDED: frozenset({"discard", "updates"}),
}

WHY: dict[State, str] = {
    State.OPEN: "it is still open: its update happens when its loop ends, and its results with it.",
    State.LEFT: "its inner loop was left by break, so no update has happened, and none will.",
    State.CLOSED: "its update has happened and its gradients are gone.",
    State.DISCARDED: "it was left before its end, so its gradients were thrown away.",
}

FIX: dict[State, str] = {
    State.OPEN: "read results after the inner loop, or after the `with` block; window.close() "
    "ends a window early.",
    State.LEFT: "call window.close() to update with what was done, or window.discard() to say that "
    "it is not wanted.",
    State.CLOSED: "open the next window; call backward inside the inner loop.",
    State.DISCARDED: 'open the next window; `with stepper.windows(..., on_exit="flush")` '
    "keeps what was done when a loop is left early.",
}


def require(state: State, call: str) -> None:
    """Raise unless the table allows this call in this state."""
    if call in ALLOWED[state]:
        return
    fitting = ", ".join(sorted(ALLOWED[state]))
    raise WindowError(
        f"{call} does not fit a window that is {state.value}.",
        why=f"{WHY[state]} What fits now: {fitting}.",
        fix=FIX[state],
        more="window-states",
    )
