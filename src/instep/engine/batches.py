"""Batches for steps in function style: a loop over a loader that knows where it is."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from instep.engine.along import Along
from instep.engine.feed import END

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from torch import nn

    from instep.engine.loop import Loop
    from instep.engine.position import ResumeBy


def batches(
    loop: Loop, loader: Iterable[Any], *, resume: ResumeBy, models: Sequence[nn.Module]
) -> Iterator[Any]:
    """Iterate a loader without windows, for steps in function style, and know where it is."""
    together = loop.core.together
    guard = nullcontext if together is None else together.guard
    loop.require_no_window()
    if together is not None:
        together.begin_loop()
        together.streams.begin()
    # The steps of other ranks would wait for the one that this batch was for.
    with guard():
        resumed = loop.begin({})
        feed = loop.feed(loader, resumed, by=resume)
    run = loop.start(feed, {})
    loop.pending = None
    along = None if together is None else Along(loop, together, models)
    is_finished, came = False, resumed is not None
    try:
        while True:
            loop.safe_point()
            with guard():
                batch = feed.take()
            if batch is END:
                break
            if along is not None:
                along.begin_batch()
            came = True
            yield batch
            feed.finish()
        if along is not None:
            along.finish()
        elif not came:
            loop.mention_nothing(feed)
        loop.finish()
        is_finished = True
    finally:
        loop.stop(run)
        if along is not None and not is_finished:
            along.leave(feed)
