"""Numbers that remember how they were counted.

They have a module of their own because a compiled build leaves it as it is: an `int` of C has no
kinds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from instep.trace.updates import Written


class Mod(int):
    """The rest of a division of a counter; it remembers what was divided by."""

    every: int
    written: Written


class Tick(int):
    """A number that is counted up or measured from another: `count`, `i - last`."""
