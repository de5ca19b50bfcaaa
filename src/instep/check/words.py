"""What a file must hold to be worth a closer look: asked of every file, so without decoding it.

All words are ASCII, which every encoding that Python reads spells the same.
"""

from __future__ import annotations

from functools import lru_cache

WORDS = ("backward(", "zero_grad", "cuda.amp", "optim.")
"""No rule is about a text that holds none of these."""
COMMENTS = ("instep:", "noqa: INS")
"""Comments to instep: one that silences nothing is reported, wherever it is."""


def wanted(text: str) -> bool:
    """Say whether a text can hold anything that a rule is about.

    >>> wanted("loss.backward()"), wanted("print('backward compatible')")
    (True, False)
    """
    return holds(text, WORDS)


def holds(text: str, words: tuple[str, ...]) -> bool:
    """Say whether one of some words is in a text."""
    return any(word in text for word in words)


def holds_bytes(data: bytes, words: tuple[str, ...]) -> bool:
    """Say the same of a file's content."""
    return any(word in data for word in _encoded(words))


@lru_cache
def _encoded(words: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple(word.encode() for word in words)
