"""Batches for steps in function style: a loop over a loader that knows where it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from instep.engine.feed import END

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from instep.engine.feed import ResumeBy
    from instep.engine.loop import Loop


def batches(loop: Loop, loader: Iterable[Any], *, resume: ResumeBy) -> Iterator[Any]:
    """Iterate a loader without windows, for steps in function style, and know where it is."""
    resumed = loop.begin({})
    feed = loop.feed(loader, resumed, by=resume)
    run = loop.start(feed, {})
    loop.pending = None
    try:
        while True:
            loop.safe_point()
            batch = feed.take()
            if batch is END:
                break
            yield batch
            feed.finish()
        loop.finish()
    finally:
        loop.stop(run)
