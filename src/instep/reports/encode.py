"""JSON that is plain ASCII, so that nothing in it can act on a terminal or break a parser."""

from __future__ import annotations

import json
from typing import Any

from instep.reports.escape import encodable


def dump(value: Any) -> str:
    r"""Return a value as indented JSON in pure ASCII, keys in the order they were given.

    >>> print(dump({"b": "\x1b", "a": "é"}), end="")
    {
      "b": "\u001b",
      "a": "\u00e9"
    }
    """
    return json.dumps(_clean(value), indent=2, allow_nan=False) + "\n"


def compact(value: Any) -> str:
    r"""Return a value as one line of JSON in pure ASCII.

    >>> compact({"a": [1, "é"]})
    '{"a":[1,"\\u00e9"]}'
    """
    return json.dumps(_clean(value), separators=(",", ":"), allow_nan=False)


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {name: _clean(member) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(member) for member in value]
    return value
