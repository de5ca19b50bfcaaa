"""The first dict of a trace in JSON: its version, and what the events alone do not say."""

from collections.abc import Mapping
from typing import Any, Self

from instep.trace.codec import (
    TraceFormatError,
    decode_value,
    encode_value,
    is_fact,
    is_number,
    refusal,
)
from instep.trace.created import Fact
from instep.trace.plain import dataclass

VERSION = 1
"""Of the JSON form; it grows when a reader of the old form could misread the new one."""


@dataclass(frozen=True, slots=True)
class Header:
    """The limit of a trace, how many events of each kind it dropped, and its facts by id.

    >>> Header.decode(Header(limit=8, dropped={"step": 2}, facts={}).encode()).dropped
    {'step': 2}
    """

    limit: int | None
    dropped: Mapping[str, int]
    # Beside the events, since the event that brought a fact may have been dropped.
    facts: Mapping[str, Mapping[str, Fact]]

    def encode(self) -> dict[str, Any]:
        """Return a dict of JSON's own types."""
        return {
            "kind": "trace",
            "version": VERSION,
            "limit": self.limit,
            "dropped": dict(self.dropped),
            "facts": {id_: encode_value(known) for id_, known in self.facts.items()},
        }

    @classmethod
    def decode(cls, data: object) -> Self:
        """Return the header that `encode` made this dict of, or raise TraceFormatError."""
        if not isinstance(data, dict) or data.get("kind") != "trace":
            raise refusal("it does not start with a header")
        if data.get("version") != VERSION:
            raise TraceFormatError(
                f"trace of version {data.get('version')!r}; this instep reads version {VERSION}.\n"
                "  why:  the form changed between the two.\n"
                "  fix:  read it with the instep that wrote it, or record it again."
            )
        limit, dropped, facts = (data.get(name) for name in ("limit", "dropped", "facts"))
        if limit is not None and not (is_number(limit, int) and limit > 0):
            raise refusal(f"its limit cannot be {limit!r}")
        if not isinstance(dropped, dict) or not all(
            isinstance(kind, str) and is_number(count, int) for kind, count in dropped.items()
        ):
            raise refusal("what it dropped is not a number for each kind")
        if not isinstance(facts, dict):
            raise refusal("its facts are not a dict")
        return cls(limit, dropped, {str(id_): _facts(known) for id_, known in facts.items()})


def _facts(data: object) -> dict[str, Fact]:
    facts = decode_value(data)
    if not isinstance(facts, dict) or not all(map(is_fact, facts.values())):
        raise refusal(f"facts cannot be {data!r}")
    return facts
