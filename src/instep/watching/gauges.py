"""Measurements as the rules read them: the latest of each kind, told at the end of a trace.

quantity              value                                              unit         subject
gradients-missing     parameters that have not had a gradient so far     parameters   their names
foreign-gradients     bytes of gradients that no optimizer holds         bytes        their names
nonfinite-updates     updates made with gradients that were not finite   updates
update-ratio          median change of a weight over its size            relative     the weight
graphs-kept           graphs of earlier updates that are still alive     graphs
accumulation-error    error of a sum of gradients in low precision       relative     the parameter
ranks-disagree        ranks whose updates or weights are not the others'  ranks       which, and how
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.trace import Measured

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.trace import Place


class Gauges:
    """The latest measurement of each quantity and optimizer."""

    def __init__(self) -> None:
        self._shown: dict[tuple[str, str | None], Measured] = {}

    def show(
        self,
        quantity: str,
        optimizer: str | None,
        value: float,
        *,
        unit: str | None = None,
        subject: str | None = None,
        place: Place | None = None,
    ) -> None:
        """Set a gauge; an optimizer of None: it concerns the whole job."""
        owners = None if optimizer is None else (optimizer,)
        self._shown[quantity, optimizer] = Measured(
            owners, quantity, value, unit, subject, place=place
        )

    def hide(self, quantity: str, optimizer: str | None) -> None:
        """Take a gauge away: what it showed is over."""
        self._shown.pop((quantity, optimizer), None)

    def __iter__(self) -> Iterator[Measured]:
        return iter(list(self._shown.values()))
