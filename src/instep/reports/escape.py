"""Text from a user's file, made safe to print.

A source line or a file name may hold terminal escapes, or marks that turn the reading direction.
Printed as they are, they could rewrite the report, so they are spelled out instead.
"""

from __future__ import annotations

from unicodedata import category

from instep.trace.pattern import pattern

# Controls, invisible format characters (the bidirectional ones among them), halves of surrogate
# pairs (which cannot even be encoded), line and paragraph separators.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_LONE = pattern("[\ud800-\udfff]")


def is_unsafe(character: str) -> bool:
    """Say whether a character must not reach a terminal as it is."""
    return category(character) in _UNSAFE


def spelled(character: str) -> str:
    r"""Return a character as Python would write it in a string.

    >>> print(spelled("\x1b"), spelled("\u202e"), spelled("\n"))
    \x1b \u202e \n
    """
    if character in _SHORT:
        return _SHORT[character]
    number = ord(character)
    if number <= 0xFF:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"


def visible(text: str) -> str:
    r"""Return text on one line, with everything unsafe spelled out.

    >>> print(visible("a\x1b[31mb"))
    a\x1b[31mb
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(spelled(char) if is_unsafe(char) else char for char in text)


def encodable(text: str) -> str:
    """Return text with lone surrogates replaced, so that every encoder and parser takes it.

    Each becomes U+FFFD, which has as many UTF-8 bytes and UTF-16 units as the surrogate had.
    """
    return _LONE.sub("\N{REPLACEMENT CHARACTER}", text)
