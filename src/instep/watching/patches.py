"""Replacing attributes of other people's modules and classes, and putting them back."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_MISSING = object()


class Patches:
    """What was replaced and hooked. `undo` takes it back in the reverse order."""

    def __init__(self) -> None:
        self.is_on = True
        """If not, what was replaced does what it always did."""
        self._undo: list[Callable[[], None]] = []

    def replace(self, owner: Any, name: str, around: Callable[..., Any]) -> None:
        """Put `around(original, *args, **kwargs)` in place of an attribute.

        An inherited one is replaced for this owner alone.
        """
        inherited = name not in vars(owner)
        original = getattr(owner, name)

        @functools.wraps(original)
        def replaced(*args: Any, **kwargs: Any) -> Any:
            if not self.is_on:
                return original(*args, **kwargs)
            return around(original, *args, **kwargs)

        setattr(owner, name, replaced)

        def undo() -> None:
            # Somebody who replaced it after us keeps his: he calls ours, which still works.
            if vars(owner).get(name, _MISSING) is not replaced:
                return
            if inherited:
                delattr(owner, name)
            else:
                setattr(owner, name, original)

        self._undo.append(undo)

    def later(self, undo: Callable[[], None]) -> None:
        """Have something called at the end."""
        self._undo.append(undo)

    @property
    def is_held(self) -> bool:
        """Whether anything is left to put back."""
        return bool(self._undo)

    def undo(self) -> None:
        """Put everything back; after an error, call it again for the rest."""
        self.is_on = False
        while self._undo:
            self._undo.pop()()
