"""What a report is, by how the name of its file ends."""

from __future__ import annotations

from pathlib import Path

from instep.errors import WatchError

FORMATS = {".json": "json", ".sarif": "sarif", ".txt": "text"}
PAGES = (".html", ".htm")


def format_of(path: str | Path) -> str | None:
    """Return the format of the findings in a report; None: it is a page.

    >>> format_of("found.json"), format_of("page.html")
    ('json', None)
    """
    suffix = Path(path).suffix.lower()
    if suffix not in {*PAGES, *FORMATS}:
        raise WatchError(
            f"{str(path)!r} does not say what to write.",
            why="the format of a report is told by how the name of its file ends.",
            fix="end it in .html for the page, or in .json, .sarif or .txt for the findings.",
            more="watching",
        )
    return FORMATS.get(suffix)
