"""Whether to colour, and with what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Choice = Literal["auto", "always", "never"]

# The sixteen colours of every terminal, so that the user's theme decides how they look.
_STYLES = {
    "error": "1;31",
    "warning": "1;33",
    "info": "1;36",
    "strong": "1",
    "gutter": "34",
    "related": "36",
    "fix": "32",
}


def wants_colour(choice: Choice, *, is_terminal: bool, environ: Mapping[str, str]) -> bool:
    """Decide: an explicit choice, then NO_COLOR, then FORCE_COLOR, then whether it is a terminal.

    >>> wants_colour("auto", is_terminal=True, environ={"NO_COLOR": "1"})
    False
    """
    if choice != "auto":
        return choice == "always"
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return True
    return is_terminal and environ.get("TERM") != "dumb"


class Paint:
    """Puts text in a style, or leaves it alone."""

    __slots__ = ("is_on",)

    def __init__(self, *, is_on: bool) -> None:
        self.is_on = is_on

    def __call__(self, style: str, text: str) -> str:
        """Return the text in that style."""
        if not self.is_on or not text:
            return text
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"
