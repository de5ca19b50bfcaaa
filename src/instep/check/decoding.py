"""From the bytes of a Python file to its text, as PEP 263 has it."""

from __future__ import annotations

import codecs
import re

from instep.check.parsing import Fault
from instep.trace.plain import dataclass

_COOKIE = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_BLANK = re.compile(rb"^[ \t\f]*(?:#.*)?$")
_LATIN = ("latin-1", "iso-8859-1", "iso-latin-1")


@dataclass(frozen=True, slots=True)
class Decoded:
    """The whole text, byte-order mark and line endings included, and its encoding.

    `whole.encode(encoding)` gives the bytes back.
    """

    whole: str
    encoding: str


def decode(data: bytes) -> Decoded | Fault:
    r"""Decode a Python file.

    >>> decode("# coding: latin-1\nx = 'é'".encode("latin-1")).encoding
    'iso-8859-1'
    """
    marked = data.startswith(codecs.BOM_UTF8)
    declared = _declared(data.removeprefix(codecs.BOM_UTF8))
    encoding = _usual(declared or "utf-8")
    if marked and encoding != "utf-8":
        return Fault("undecodable", f"it has a UTF-8 mark, but declares {declared!r}.", 1)
    try:
        whole = data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return Fault("undecodable", f"byte {data[error.start]:#04x} is not {encoding}.", line)
    except (LookupError, UnicodeError, ValueError, AssertionError):
        # Codecs that are no text encodings (rot13, hex) or that fail in their own ways (idna).
        return Fault("undecodable", f"it declares {declared!r}, which is no text encoding.", 1)
    if declared is not None and declared not in whole[:500]:
        return Fault("undecodable", f"it declares {declared!r}, which it is not written in.", 1)
    return Decoded(whole, encoding)


def _declared(data: bytes) -> str | None:
    """Return the encoding that a comment in the first two lines names, if one does."""
    for line in re.split(rb"\r\n?|\n", data[:500], maxsplit=2)[:2]:
        if found := _COOKIE.match(line):
            return found[1].decode("ascii", "replace")
        if not _BLANK.match(line):
            break
    return None


def _usual(name: str) -> str:
    """Spell an encoding the way Python does: `utf8-unix`, `UTF_8` and `utf-8-sig` are all UTF-8."""
    spelled = name.lower().replace("_", "-")
    if spelled == "utf8" or spelled.startswith(("utf-8", "utf8-")):
        return "utf-8"
    if spelled in _LATIN or spelled.startswith(tuple(f"{latin}-" for latin in _LATIN)):
        # iso-8859-15 begins like Latin-1's name and is another encoding; it has no dash there.
        return "iso-8859-1"
    return name
