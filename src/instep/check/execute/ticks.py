"""Numbers that remember how they were counted.

They have a module of their own because a compiled build leaves it as it is: an `int` of C has no
kinds.
"""


class Mod(int):
    """The rest of a division of a counter; it remembers what was divided by."""

    every: int
    literal: bool | None  # None: it is 1 unless somebody asks for more


class Tick(int):
    """A number that is counted up or measured from another: `count`, `i - last`."""
