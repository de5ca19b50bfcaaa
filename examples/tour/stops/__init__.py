"""The stops, in the order in which they are made. A new one is a file here and a line below."""

from __future__ import annotations

from examples.tour.stop import Stop
from examples.tour.stops import checking, one_window, patches, training, watching

STOPS: dict[str, Stop] = {
    "One window, four ways": one_window.stop,
    "Training": training.stop,
    "Your own loops": checking.stop,
    "A job that runs": watching.stop,
    "Images in patches": patches.stop,
}
