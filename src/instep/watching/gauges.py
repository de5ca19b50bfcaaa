"""Measurements as the rules read them: the latest of each kind, told at the end of a trace.

quantity              value                                              unit         subject
gradients-missing     parameters that have not had a gradient so far     parameters   their names
gradients-cut-off     those of them whose modules are called             parameters   their names
twin-gradients        parameters like an optimizer's, which has none     parameters   their model
foreign-gradients     bytes of gradients that no optimizer holds         bytes        of what
foreign-backwards     backwards that have added to those, uncleared      backwards    of what
foreign-evaluated     modules of those, if all are in eval mode          modules      of what
backwards-in-gradient backwards in an update since the last clear        backwards
gradients-uncleared   parameters left out where others are cleared       parameters   their names
loss-scale            what a scaler multiplies losses by                 times        the scaler
loss-scale-at-most    the highest of these so far                        times        the scaler
nonfinite-updates     updates made with gradients that were not finite   updates, or
                                                                         updates at least
nonfinite-weights     parameters that are not finite at the end          parameters   their names
update-ratio          median change of a weight over its size            relative     the weight
update-of-first       median change over the weight's first size         times        the weight
loss-growth           latest losses over the first one, with the above   times        the weight
items-differ          items of one mean over those of another            times        both numbers
updates-by-hand       backwards in gradients that weights follow by hand  backwards
graphs-kept           graphs of earlier updates that are still alive     graphs, or   who has them
                                                                         graphs at least
accumulation-error    error of a sum of gradients in low precision       relative     the parameter
ranks-disagree        ranks whose updates or weights are not the others'  ranks       which, and how
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.trace import Measured

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.trace import Place

_Key = tuple[str, str | None, str | None]
"""The quantity, and the optimizer or the model that it was measured on."""


class Gauges:
    """The latest measurement of each quantity and optimizer."""

    def __init__(self) -> None:
        self._shown: dict[_Key, Measured] = {}
        self.has_news = False
        """One is new since the rules have looked, or has doubled or halved."""
        self._looked: dict[_Key, float] = {}  # values when the rules last looked

    def show(
        self,
        quantity: str,
        optimizer: str | None,
        value: float,
        *,
        unit: str | None = None,
        subject: str | None = None,
        place: Place | None = None,
        model: str | None = None,
    ) -> None:
        """Set a gauge; an optimizer of None: it concerns the whole job, or one model of it."""
        owners = None if optimizer is None else (optimizer,)
        key = (quantity, optimizer, model)
        self._shown[key] = Measured(owners, quantity, value, unit, subject, place=place)
        if not _is_near(self._looked.get(key), value):
            self.has_news = True

    def hide(self, quantity: str, optimizer: str | None, model: str | None = None) -> None:
        """Take a gauge away: what it showed is over."""
        self._shown.pop((quantity, optimizer, model), None)

    def looked(self) -> None:
        """Take note that the rules look."""
        self.has_news = False
        self._looked = {key: event.value for key, event in self._shown.items()}

    def __iter__(self) -> Iterator[Measured]:
        return iter(list(self._shown.values()))


def _is_near(old: float | None, new: float) -> bool:
    return old is not None and (old == new or abs(new) / 2 < abs(old) < abs(new) * 2)
