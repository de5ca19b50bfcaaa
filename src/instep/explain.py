"""The pages behind `instep explain`: one per subject that an error message can point to."""

from __future__ import annotations

import difflib
from importlib import resources

ALSO = {
    "combine": "two-pass",
    "ddp": "ranks",
    "encode": "two-pass",
    "fsdp": "ranks",
    "gradcache": "two-pass",
    "groupnorm": "batchnorm",
    "halo": "patches",
    "load": "checkpoint",
    "micro": "split",
    "oom": "split",
    "randompatches": "patches",
    "save": "checkpoint",
    "saving": "checkpoint",
    "shard": "ranks",
    "stitch": "patches",
}
"""Public names, options and words of the trade, by the page that tells about them."""


def topics() -> list[str]:
    """Return the names of all pages."""
    folder = resources.files("instep") / "pages"
    return sorted(page.name.removesuffix(".md") for page in folder.iterdir() if page.is_file())


def page(topic: str) -> str | None:
    """Return the page of that name, or None.

    >>> page("stitch") == page("patches")
    True
    """
    topic = ALSO.get(topic, topic)
    if topic not in topics():
        return None
    return (resources.files("instep") / "pages" / f"{topic}.md").read_text(encoding="utf-8")


def title(topic: str) -> str:
    """Return what a page is about.

    >>> title("items")
    'Items'
    """
    return (page(topic) or "").partition("\n")[0].removeprefix("# ")


def nearest(topic: str) -> str | None:
    """Return the page name that looks most like this one.

    >>> nearest("empty_windows")
    'empty-window'
    """
    return next(iter(difflib.get_close_matches(topic, topics(), n=1)), None)
